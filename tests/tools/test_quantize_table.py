"""tools/quantize_table.py: which program it measures with."""
import subprocess
import sys

from conftest import ROOT

SCRIPT = ROOT / "tools" / "quantize_table.py"


def test_the_program_is_the_release(tmp_path):
    """By default what the presets build; where there is none, one line says which is missing."""
    told = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True).stdout
    assert "build/release/descent" in told
    presets = (ROOT / "CMakePresets.json").read_text()
    assert "build/${presetName}" in presets and '"release"' in presets
    done = subprocess.run([sys.executable, SCRIPT, "--descent", tmp_path / "none"], capture_output=True, text=True)
    assert done.returncode == 2 and f"{tmp_path / 'none'} is not there" in done.stderr and "Traceback" not in done.stderr
