"""JSON files of a checkpoint, read strictly: no key twice, no NaN, a bounded size. Config: a dictionary that knows what
was asked of it, so that a key nobody understood is found."""

import json
import math
import struct

from .errors import ConvertError, show

REQUIRED = object()  # a getter's default where there is none


def loads(data, what):
    """The value of the UTF-8 JSON text `data`."""
    def pairs(items):
        result = dict(items)
        if len(result) != len(items):
            seen = set()
            twice = next(name for name, _ in items if name in seen or seen.add(name))
            raise ConvertError(f"{what}: key {show(twice)} appears twice")
        return result

    def constant(name):
        raise ConvertError(f"{what}: {name} is no JSON number")

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except UnicodeDecodeError as e:
        raise ConvertError(f"{what}: byte {e.start} is not UTF-8") from None
    except json.JSONDecodeError as e:
        raise ConvertError(f"{what}: line {e.lineno}, column {e.colno}: {e.msg}") from None
    except (RecursionError, ValueError) as e:  # nested too deep; a number of thousands of digits
        reason = "nested too deep" if isinstance(e, RecursionError) else "a number that long is not read"
        raise ConvertError(f"{what}: {reason}") from None


class Config:
    """The settings of a checkpoint: each getter checks type and range, `finish` refuses what was never asked for."""

    def __init__(self, values, what):
        if not isinstance(values, dict):
            raise ConvertError(f"{what}: an object expected")
        self.values, self.what, self.asked = values, what, set()

    def __contains__(self, key):
        return key in self.values

    def bad(self, key, expected):
        value = self.values[key]
        text = show(value) if isinstance(value, (str, int, float)) or value is None else f"a {type(value).__name__}"
        return ConvertError(f"{self.what}: {key} is {text}; expected {expected}")

    def value(self, key, default=None):
        """Whatever there is, for the caller to check."""
        self.asked.add(key)
        if key in self.values:
            return self.values[key]
        if default is REQUIRED:
            raise ConvertError(f"{self.what}: {key} is missing")
        return default

    def integer(self, key, low, high, default=None):
        value = self.value(key, default)
        if key in self.values and (type(value) is not int or not low <= value <= high):
            raise self.bad(key, f"a whole number from {low} to {high}")
        return value

    def positive(self, key, default=None):
        """A number above 0 that is one in float32 too."""
        value = self.value(key, default)
        if key not in self.values:
            return value
        try:
            narrow = struct.unpack("<f", struct.pack("<f", value))[0] if type(value) in (int, float) else 0.0
        except OverflowError:
            narrow = 0.0
        if not (math.isfinite(narrow) and narrow > 0):
            raise self.bad(key, "a number above 0 that fits float32")
        return float(value)

    def flag(self, key, default=None):
        value = self.value(key, default)
        if key in self.values and type(value) is not bool:
            raise self.bad(key, "true or false")
        return value

    def choice(self, key, choices, default=None):
        value = self.value(key, default)
        if key in self.values and (not isinstance(value, str) or value not in choices):
            raise self.bad(key, "one of " + ", ".join(choices))
        return value

    def text(self, key, default=None):
        value = self.value(key, default)
        if key in self.values and not isinstance(value, str):
            raise self.bad(key, "text")
        return value

    def ignore(self, *keys):
        self.asked.update(keys)

    def finish(self):
        for key in self.values:
            if key not in self.asked:
                raise ConvertError(f"{self.what}: key {show(key)} is not one this converter knows")


