#!/usr/bin/env bash
# Compiles each source of the library and the command by itself, as far as its syntax: check_alone.sh BUILD_FOLDER, which was configured
# with -DTANDEM_TOGETHER=OFF. Kernels are always compiled so.
set -euo pipefail
python=$(command -v python3) || { echo "SKIPPED: sources by themselves (there is no python3)"; exit 0; }
"$python" - "$1" <<'PROGRAM'
import concurrent.futures, json, os, subprocess, sys

def wanted(file):
    return ("/src/tandem/" in file or "/src/cli/" in file) and file.endswith(".cpp") and "/kernels/" not in file and "/cuda/" not in file

def check(entry):
    command = entry["command"].split(" -o ")[0] + " -fsyntax-only -c '" + entry["file"] + "'"
    done = subprocess.run(command, shell=True, cwd=entry["directory"], capture_output=True, text=True)
    return entry["file"], done.returncode, done.stderr

with open(os.path.join(sys.argv[1], "compile_commands.json")) as file:
    entries = [entry for entry in json.load(file) if wanted(entry["file"])]
failed = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for name, status, text in pool.map(check, entries):
        if status:
            failed += 1
            print("FAILED:", name, text[-2000:], sep="\n")
print(len(entries) - failed, "of", len(entries), "sources compile by themselves")
sys.exit(failed > 0 or len(entries) < 100)
PROGRAM
