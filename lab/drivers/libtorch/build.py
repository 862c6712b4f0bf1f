"""Builds the libtorch driver into build-peers/libtorch_driver, with the libtorch that is part of this interpreter's
PyTorch. Says what is missing where something is. Skips the work where the program is newer than its sources."""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.path.dirname(os.path.dirname(HERE))
SOURCES = ["driver.cpp", "network.cpp", "cell.cpp", "inputs.cpp"]
HEADERS = ["cell.h", "inputs.h", "loss.h", "model.h", "network.h", "../../listings/libtorch/models.h"]


def stop(message):
    sys.exit("libtorch driver: " + message)


def json_folder(compiler):
    """The include folder of nlohmann/json as options; none where the compiler finds it by itself."""
    folder = os.environ.get("NLOHMANN_JSON")
    options = ["-I" + folder] if folder else []
    probe = subprocess.run([compiler, "-x", "c++", "-E", "-"] + options, input=b"#include <nlohmann/json.hpp>\n",
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if probe.returncode == 0:
        return options
    stop("the header nlohmann/json.hpp is missing. Install the package nlohmann-json3-dev, or set NLOHMANN_JSON to the "
         "folder that holds nlohmann/.")


def main():
    compiler = os.environ.get("CXX") or shutil.which("g++")
    if not compiler:
        stop("g++ is missing; install it, or set CXX to a C++20 compiler.")
    try:
        import torch
    except ImportError:
        stop("the interpreter %s has no torch; make its environment with 'tandem lab setup pytorch'." % sys.executable)
    root = os.path.dirname(os.path.abspath(torch.__file__))
    include, libraries = os.path.join(root, "include"), os.path.join(root, "lib")
    if not os.path.exists(os.path.join(include, "torch", "csrc", "api", "include", "torch", "nn.h")):
        stop("this PyTorch comes without libtorch's headers (include/torch/csrc/api).")
    target = os.path.join(HOME, "build-peers", "libtorch_driver")
    newest = max(os.path.getmtime(os.path.join(HERE, name)) for name in SOURCES + HEADERS + ["build.py"])
    newest = max(newest, os.path.getmtime(torch.__file__))
    if os.path.exists(target) and os.path.getmtime(target) > newest:
        print("build-peers/libtorch_driver is up to date")
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)

    # The driver's own code is thin, so -O1 is enough. Headers of others count as the system's: no warnings from them.
    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-pthread",
             "-D_GLIBCXX_USE_CXX11_ABI=%d" % torch.compiled_with_cxx11_abi(), "-isystem", include,
             "-isystem", os.path.join(include, "torch", "csrc", "api", "include")] + json_folder(compiler)
    objects = []
    for name in SOURCES:
        objects.append(target + "." + name.replace(".cpp", ".o"))
        run([compiler] + flags + ["-c", os.path.join(HERE, name), "-o", objects[-1]])
    # Every library is named and kept, as libtorch's own CMake files do: the one for CUDA registers itself when loaded.
    present = [name for name in ("torch", "torch_cpu", "torch_cuda", "c10", "c10_cuda")
               if os.path.exists(os.path.join(libraries, "lib%s.so" % name))]
    # Libraries that those need lie in other packages of the environment; their own run paths find them.
    run([compiler] + objects + ["-pthread", "-L" + libraries, "-Wl,-rpath," + libraries, "-Wl,--no-as-needed"] +
        ["-l" + name for name in present] + ["-Wl,--allow-shlib-undefined", "-o", target + ".new"])
    os.replace(target + ".new", target)
    for name in objects:
        os.remove(name)
    print("built build-peers/libtorch_driver with PyTorch %s" % torch.__version__)


def run(command):
    print(" ".join(command), flush=True)
    if subprocess.run(command).returncode != 0:
        stop("the compiler failed; its messages are above.")


if __name__ == "__main__":
    main()
