# Writes OUT, a C file that holds the bytes of FILE as `const char NAME[]`, their number as `const size_t NAME_size`, and their
# SHA-256 in hexadecimal digits as `const char NAME_digest[]`.
file(READ ${FILE} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," values "${hex}")
file(SHA256 ${FILE} digest)
file(WRITE ${OUT} "#include <stddef.h>\n\nextern const char ${NAME}[], ${NAME}_digest[];\nextern const size_t ${NAME}_size;\n"
                  "const char ${NAME}[] = {\n${values}\n};\nconst size_t ${NAME}_size = ${bytes};\n"
                  "const char ${NAME}_digest[] = \"${digest}\";\n")
