# Writes OUT, a C file that holds the bytes of FILE as `const char NAME[]` and their number as `const size_t NAME_size`.
file(READ ${FILE} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," values "${hex}")
file(WRITE ${OUT} "#include <stddef.h>\n\nextern const char ${NAME}[];\nextern const size_t ${NAME}_size;\n"
                  "const char ${NAME}[] = {\n${values}\n};\nconst size_t ${NAME}_size = ${bytes};\n")
