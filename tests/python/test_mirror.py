"""_native.py says what engine/descent.h says. The header is compiled for sizes, offsets and values, and its prototypes are
read for the types of arguments and results, so that neither can change alone."""
import ctypes
import re
import shutil
import subprocess

import pytest
from conftest import ROOT
from descent import _native

HEADER = ROOT / "engine" / "descent.h"
TEXT = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)

CONSTANTS = {
    "DESCENT_MESSAGE_SIZE": _native.MESSAGE_SIZE, "DESCENT_MAX_STEPS": _native.MAX_STEPS,
    "DESCENT_MAX_KINDS": _native.MAX_KINDS, "DESCENT_MAX_TERMS": _native.MAX_TERMS, "DESCENT_MAX_SCALES": _native.MAX_SCALES, "DESCENT_MAX_NSTEP": _native.MAX_NSTEP,
    **{f"DESCENT_SOLVER_{name.upper()}": value for name, value in _native.SOLVERS.items()},
    **{f"DESCENT_HISTORY_{name.upper()}": value for name, value in _native.HISTORIES.items()},
    **{f"DESCENT_RULE_{name.upper()}": value for name, value in _native.STEP_RULES.items()},
    **{f"DESCENT_NOISE_{name.upper()}": value for name, value in _native.NOISE_SCHEDULES.items()},
    "DESCENT_ROW_BUCKETS": _native.ROW_BUCKETS, "DESCENT_METRICS": _native.METRICS,
    "DESCENT_SWEEP_DEPTHS": _native.SWEEP_DEPTHS,
    **{f"DESCENT_EXIT_{name.upper()}": value for name, value in _native.EXITS.items()},
    "DESCENT_ADD_SPECIAL": _native.ADD_SPECIAL, "DESCENT_PARSE_SPECIAL": _native.PARSE_SPECIAL,
    **{f"DESCENT_{code.name}": int(code) for code in _native.Code},
    **{f"DESCENT_PAGE_{name.upper()}": value for name, value in _native.PAGE_TYPES.items()},
    **{f"DESCENT_OBSERVE_{name.upper()}": value for name, value in _native.OBSERVE.items()},
    **{f"DESCENT_{name.upper()}": value for name, value in _native.INTERVENTIONS.items()},
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What the compiler says: {"constant X": n, "size S": n, "field S.f": (offset, size)}."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "no C compiler: tools/setup.sh installs one"
    lines = [f'printf("constant {name} %lld\\n", (long long){name});' for name in CONSTANTS]
    for name, struct in _native.STRUCTS.items():
        lines.append(f'printf("size {name} %zu\\n", sizeof({name}));')
        for field, _ in struct._fields_:
            lines.append(f'printf("field {name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                         f"sizeof((({name} *)0)->{field}));")
    work = tmp_path_factory.mktemp("mirror")
    source, program = work / "mirror.c", work / "mirror"
    source.write_text('#include "descent.h"\n#include <stdio.h>\nint main(void)\n{\n' + "\n".join(lines) + "\nreturn 0;\n}\n")
    subprocess.run([compiler, "-std=c11", f"-I{HEADER.parent}", str(source), "-o", str(program)], check=True)
    said = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    return {f"{kind} {name}": tuple(map(int, numbers)) for kind, name, *numbers in map(str.split, said)}


def test_constants(compiled):
    assert {name: compiled[f"constant {name}"] for name in CONSTANTS} == {n: (v,) for n, v in CONSTANTS.items()}


@pytest.mark.parametrize("name", _native.STRUCTS)
def test_struct(compiled, name):
    struct = _native.STRUCTS[name]
    assert ctypes.sizeof(struct) == compiled[f"size {name}"][0]
    for field, _ in struct._fields_:
        ours = getattr(struct, field)
        assert (ours.offset, ours.size) == compiled[f"field {name}.{field}"], field


def structs_of_header():
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", TEXT, flags=re.S):
        fields = []
        for declaration in filter(None, map(str.strip, body.split(";"))):
            called = re.search(r"\(\*(\w+)\)", declaration)
            if called:
                fields.append(called.group(1))
                continue
            first, *others = declaration.split(",")
            fields.append(re.search(r"(\w+)\s*(\[.*\])*$", first).group(1))
            fields += [re.match(r"\s*\**(\w+)", other).group(1) for other in others]
        found[name] = fields
    return found


def test_every_struct_and_field_is_mirrored():
    assert structs_of_header() == {name: [field for field, _ in struct._fields_] for name, struct in _native.STRUCTS.items()}


SCALARS = {
    "bool": ctypes.c_bool, "int": ctypes.c_int, "size_t": ctypes.c_size_t, "float": ctypes.c_float, "double": ctypes.c_double,
    "int64_t": ctypes.c_int64, "uint8_t": ctypes.c_uint8, "uint16_t": ctypes.c_uint16, "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64, "descent_code": ctypes.c_int, "descent_page_type": ctypes.c_int,
    "descent_intervention": ctypes.c_int, "descent_step_rule": ctypes.c_int, "descent_noise_schedule": ctypes.c_int, "descent_solver_method": ctypes.c_int, "descent_history_policy": ctypes.c_int, "descent_exit_criterion": ctypes.c_int, "descent_weight_type": ctypes.c_int, "descent_metric": ctypes.c_int,
    "descent_observer": _native.Observer, "descent_progress": _native.Progress, **_native.STRUCTS,
}
OPAQUE = set(re.findall(r"typedef struct (\w+) \1;", TEXT))
# Text that may hold NULs: ctypes would cut a c_char_p at the first.
BYTES = {"descent_tokenizer_piece", "descent_tokenizer_spelling", "descent_decoder_push", "descent_decoder_finish"}


def native_type(c_type, function, result=False):
    stars = c_type.count("*")
    base = " ".join(word for word in c_type.replace("*", " ").split() if word not in ("const", "struct"))
    if base == "void":
        return [None, ctypes.c_void_p][stars]
    if base == "char":
        if result and function in BYTES:
            return ctypes.POINTER(ctypes.c_uint8)
        return [None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)][stars]
    if base in OPAQUE:
        return [None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)][stars]
    kind = SCALARS[base]
    for _ in range(stars):
        kind = ctypes.POINTER(kind)
    return kind


def functions_of_header():
    found = {}
    for declaration in re.findall(r"^DESCENT_API ([^;]*);", TEXT, flags=re.M):
        result, name, arguments = re.match(r"(.*?)(\w+)\(([^)]*)\)$", " ".join(declaration.split())).groups()
        types = []
        for argument in [] if arguments == "void" else arguments.split(","):
            array = "*" if "[" in argument else ""
            types.append(native_type(re.match(r"(.*?)\w+(\[\d*\])?$", argument.strip()).group(1) + array, name))
        found[name] = (native_type(result, name, result=True), types)
    return found


def test_every_function_is_mirrored():
    header = functions_of_header()
    assert len(header) > 40
    assert list(header) == list(_native.FUNCTIONS)
    for name, signature in header.items():
        assert _native.FUNCTIONS[name] == signature, name


def test_the_library_exports_the_header_and_nothing_else():
    exported = subprocess.run(["nm", "-D", "--defined-only", _native.library._name], check=True, capture_output=True, text=True)
    names = {line.split()[-1] for line in exported.stdout.splitlines() if line.split()[-2] == "T"}
    ours = {name for name in names if not name.startswith(("__asan", "__ubsan", "__gcov", "__sanitizer", "_init", "_fini"))}
    assert ours == set(_native.FUNCTIONS)
