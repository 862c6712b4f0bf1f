"""Makes MXNet's wheel for 64-bit Arm loadable: run by `tandem lab setup mxnet` on that platform, in its environment.

That wheel was linked with the Arm Performance Libraries and does not bring them. Where they are installed (the loader
finds libarmpl_lp64_mp.so), links to them are put beside libmxnet.so, where it looks first. Elsewhere three small
libraries are made there: one that passes the calls for matrices on to the OpenBLAS of SciPy's wheel, and two empty
ones, since what libamath and libastring would speed up (expf, memcpy, …) is in the C library too. hello tells
which of the two it is.
"""
import ctypes
import glob
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile

NAMES = ("libarmpl_lp64_mp.so", "libamath.so", "libastring.so")


def loaded_from(name):
    """The path of the library that the loader finds under this name; None where it finds none."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next((line.split(maxsplit=5)[5].strip() for line in maps if name in line), None)


def openblas(packages):
    """SciPy's OpenBLAS, one whose functions have their plain names."""
    for path in glob.glob(os.path.join(packages, "scipy.libs", "libgfortran*")):
        ctypes.CDLL(path)  # OpenBLAS needs it, and does not say where it lies
    for path in glob.glob(os.path.join(packages, "scipy.libs", "libopenblas*.so*")):
        if hasattr(ctypes.CDLL(path), "cblas_sgemm"):
            return path
    sys.exit("mxnet_blas: SciPy's wheel must bring an OpenBLAS with the function cblas_sgemm; found none. "
             "Install scipy<1.11 in this environment.")


def compile_library(compiler, source, path, *words):
    made = subprocess.run([compiler, "-shared", "-o", path, source, *words], capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit("mxnet_blas: %s failed on %s: %s" % (compiler, os.path.basename(path), made.stderr.strip()[-400:]))


def main():
    packages = sysconfig.get_paths()["platlib"]
    folder = os.path.join(packages, "mxnet")
    if not os.path.exists(os.path.join(folder, "libmxnet.so")):
        sys.exit("mxnet_blas: MXNet must be installed in this environment; it is not.")
    genuine = [loaded_from(name) for name in NAMES]
    for name in NAMES:
        if os.path.lexists(os.path.join(folder, name)):
            os.remove(os.path.join(folder, name))
    if all(genuine):
        for name, path in zip(NAMES, genuine):
            os.symlink(path, os.path.join(folder, name))
        print("linked to the Arm Performance Libraries")
        return
    compiler = next((found for found in map(shutil.which, ("cc", "gcc", "clang")) if found), None)
    if compiler is None:
        sys.exit("mxnet_blas: a C compiler must be installed; found none of cc, gcc and clang.")
    blas = openblas(packages)
    with tempfile.TemporaryDirectory() as temporary:
        source = os.path.join(temporary, "empty.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("extern int tandem_lab_stand_in;\n")
        # An old-style path (RPATH) serves the libraries that it leads to as well.
        compile_library(compiler, source, os.path.join(folder, NAMES[0]), "-Wl,--no-as-needed", blas,
                        "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../scipy.libs")
        for name in NAMES[1:]:
            compile_library(compiler, source, os.path.join(folder, name))
    subprocess.run([sys.executable, "-c", "import mxnet"], check=True)
    print("made stand-ins for the Arm Performance Libraries with " + os.path.basename(blas))


if __name__ == "__main__":
    main()
