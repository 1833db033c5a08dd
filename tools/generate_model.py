#!/usr/bin/env python3
"""Makes a model with random weights: python3 tools/generate_model.py SHAPE OUT [options]. docs/generate.md explains."""

import sys

import convert

if __name__ == "__main__":
    sys.exit(convert.start(__file__, "descent_generate"))
