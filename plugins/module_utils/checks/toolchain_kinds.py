# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The faults of a toolchain that are looked for."""

from __future__ import annotations

from ..finding import ERROR, WARNING
from .check import Kind

_TOOLCHAIN = "SGLang, kernels/jit/utils/compile/toolchain.py"
_FLASHINFER = "FlashInfer, flashinfer/jit/cpp_ext.py"

ENVIRONMENT_MISSING = Kind(
    "python.environment_missing",
    WARNING,
    "the Python environment is not there yet",
    "Nothing can be said of its packages and of what they load before it is installed.",
    "a deployment makes it once this version is declared in the inventory:"
    " `ansible-playbook -i INVENTORY serving.sglang.deploy`; then check again",
    "role sglang_server",
)
HEADERS_OF_PYTHON = Kind(
    "python.headers_missing",
    ERROR,
    "the interpreter has no headers",
    "Triton and FlashInfer compile against Python.h. A virtual environment has none of its own: they belong to the"
    " interpreter that it was made from. The start fails when the first kernel is compiled.",
    "install the headers of the base interpreter, or set sglang_server_python to an interpreter that ships them",
    "Triton, runtime/build.py; sgl-project/sglang#1117, theroyallab/tabbyAPI#456",
)
PYTHON_UNSUPPORTED = Kind(
    "python.version_unsupported",
    ERROR,
    "no wheel of the release for this Python",
    "pip finds no wheel that fits, and the installation fails or falls back to another release.",
    "set sglang_server_python to an interpreter that the release has a wheel for",
    "names of the published wheels",
)
OUT_OF_REACH = Kind(
    "python.out_of_reach",
    ERROR,
    "the service cannot get at its interpreter or at nvcc",
    "What root can run, the user of the service cannot: the unit ends with 203/EXEC, or nvcc is not found.",
    "use an interpreter and a toolkit outside of homes and /tmp, in directories that others may enter",
    "systemd.exec(5): ProtectHome=, PrivateTmp=",
)
CXX = Kind(
    "compiler.cxx_missing",
    ERROR,
    "no C++ compiler that runs",
    "nvcc hands all code for the host to it, so no kernel is compiled and the start ends with the first one.",
    "install a C++ compiler, or set CXX in the environment of the instance",
    f"{_TOOLCHAIN}: host_compiler_path",
)
CC = Kind(
    "compiler.c_missing",
    ERROR,
    "no C compiler that runs",
    "Triton compiles a small C module before its first kernel: 'Failed to find C compiler'.",
    "install a C compiler, or set CC in the environment of the instance",
    "Triton, runtime/build.py: _find_compiler",
)
NINJA = Kind(
    "compiler.ninja_missing",
    ERROR,
    "ninja is not on the PATH of the unit",
    "SGLang and FlashInfer have their kernels built by it. It comes with the environment, in its bin directory.",
    "install ninja in the environment",
    "SGLang, kernels/jit/utils/compile/ninja.py",
)
ROOT = Kind(
    "cuda.root_not_a_directory",
    ERROR,
    "the CUDA root is not there",
    "SGLang and FlashInfer take the first place that is named, whatever is there, and look no further.",
    "set CUDA_HOME to a directory with bin/nvcc, include and lib64/libcudart.so",
    f"{_TOOLCHAIN}: cuda_home; {_FLASHINFER}: get_cuda_path",
)
NVCC = Kind(
    "cuda.nvcc_missing",
    ERROR,
    "no nvcc where SGLang looks for it",
    "Kernels that are compiled at the first start cannot be: 'Failed to build JIT module'.",
    "set CUDA_HOME to a directory with bin/nvcc, include and lib64/libcudart.so",
    f"{_TOOLCHAIN}: device_compiler_path; {_FLASHINFER}: get_cuda_path",
)
LIBCUDART = Kind(
    "cuda.libcudart_missing",
    ERROR,
    "the linker finds no libcudart.so",
    "Kernels are compiled and then not linked: 'cannot find -lcudart'. Wheels bring libcudart.so.13 in lib, and the"
    " linker wants libcudart.so in lib64.",
    "set CUDA_HOME to a directory with bin/nvcc, include and lib64/libcudart.so",
    f"{_TOOLCHAIN}: base_link_flags",
)
LIBCUDA_STUB = Kind(
    "cuda.libcuda_stub_missing",
    ERROR,
    "the linker finds no libcuda.so",
    "FlashInfer links its kernels against the driver: 'cannot find -lcuda'.",
    "set CUDA_HOME to a directory with lib64/stubs/libcuda.so, or install the driver's development link libcuda.so",
    f"{_FLASHINFER}: generate_ninja_build_for_op",
)
HEADERS = Kind(
    "cuda.headers_missing",
    ERROR,
    "nvcc finds no headers of the runtime",
    "Every compilation ends with 'cuda_runtime.h: No such file or directory'.",
    "set CUDA_HOME to a directory with bin/nvcc, include and lib64/libcudart.so",
    "nvcc --dryrun",
)
HEADERS_RELEASE = Kind(
    "cuda.headers_of_another_release",
    ERROR,
    "headers and nvcc of different releases",
    "CCCL refuses them: 'CUDA compiler and CUDA toolkit headers are incompatible, please check your include paths'."
    " Every kernel that is compiled for this card fails, minutes into the start.",
    "take headers and nvcc of one release, or install flashinfer-jit-cache of exactly FlashInfer's version, so that"
    " nothing of it is compiled",
    "CCCL, cuda/std/__cccl/cuda_toolkit.h",
)
NVCC_RELEASE = Kind(
    "cuda.nvcc_of_another_release",
    ERROR,
    "nvcc and torch of different CUDA releases",
    "What is compiled is linked against another libcudart than torch has loaded, or is not understood by this nvcc.",
    "take an nvcc of torch's CUDA release: point CUDA_HOME to it",
    "sgl-project/sglang#10951",
)
NVCC_CARD = Kind(
    "cuda.nvcc_cannot_target_card",
    ERROR,
    "nvcc cannot compile for this card",
    "SGLang compiles for exactly the card that is there: 'Unsupported gpu architecture'.",
    "take an nvcc that knows the card: point CUDA_HOME to it",
    "SGLang, kernels/jit/utils/arch.py",
)
HOST_COMPILER = Kind(
    "cuda.host_compiler_too_new",
    ERROR,
    "the C++ compiler is newer than nvcc accepts",
    "Every compilation ends with 'unsupported GNU version'.",
    "install an older g++ beside it, and set CXX and CC in the environment of the instance",
    "crt/host_config.h of the toolkit",
)
DRIVER_RELEASE = Kind(
    "cuda.torch_newer_than_driver",
    ERROR,
    "the driver is too old for torch's CUDA",
    "torch finds no card: 'The NVIDIA driver on your system is too old'.",
    "upgrade the driver",
    "CUDA Toolkit Release Notes, minor version compatibility",
)
LIBCUDA = Kind(
    "libraries.libcuda_missing",
    ERROR,
    "the loader finds no libcuda.so.1",
    "It comes with the driver and not with CUDA. Without it the kernels of SGLang cannot be imported.",
    "install NVIDIA's driver",
    "DT_NEEDED of sglang-kernel",
)
LIBNUMA = Kind(
    "libraries.libnuma_missing",
    ERROR,
    "the loader finds no libnuma.so.1",
    "Where the kernels need it, the start ends with a message that blames the kernel package. Where they do not, SGLang"
    " binds no processes to the memory next to their card.",
    "install libnuma1 (Debian, Ubuntu, SUSE) or numactl-libs (RHEL)",
    "SGLang, srt/utils/numa_utils.py; odysseus-dev/odysseus#6257",
)
SHARED_LIBRARY = Kind(
    "libraries.shared_library_missing",
    ERROR,
    "the loader does not load a library that the kernels need",
    "The import of the kernels ends with an ImportError; the last line of it often blames something else.",
    "install the package that has the library, or add its directory to LD_LIBRARY_PATH of the instance",
    "DT_NEEDED of sglang-kernel, sgl-deep-gemm and torch",
)
GLIBC = Kind(
    "libraries.glibc_too_old",
    ERROR,
    "the C library is older than the wheels want",
    "pip finds no wheel that fits this host.",
    "use a newer release of the distribution, or the runtime docker or podman",
    "names of the published wheels",
)
SGLANG_VERSION = Kind(
    "packages.sglang_differs",
    ERROR,
    "the environment holds another SGLang than declared",
    "The role refuses it, and arguments were checked against the wrong release.",
    "declare the version that is there, or remove the environment and deploy",
    "role sglang_server",
)
PINS = Kind(
    "packages.differs_from_pin",
    ERROR,
    "a package is not of the version that the release names",
    "Kernels are built against one torch and one FlashInfer. With others they fail to load, or SGLang does not start.",
    "install exactly what the release names",
    "METADATA of the wheel; SGLang, srt/entrypoints/engine.py",
)
FLASHINFER_PARTS = Kind(
    "packages.flashinfer_parts_differ",
    ERROR,
    "parts of FlashInfer of different versions",
    "FlashInfer refuses to be imported: 'version … does not match flashinfer version'.",
    "install all parts of FlashInfer in one version",
    "FlashInfer, flashinfer/jit/env.py",
)
TORCH_WITHOUT_CUDA = Kind(
    "packages.torch_without_cuda",
    ERROR,
    "torch is built without CUDA",
    "SGLang finds no card and starts on the CPU, or not at all.",
    "install the torch that the release names, from PyPI",
    "torch/version.py",
)
PINS_ASSUMED = Kind(
    "release.pins_assumed",
    WARNING,
    "no data of what this release requires",
    "The environment is measured by the nearest release that is known, so a difference may be right.",
    "take a release whose data is in this collection, or upgrade the collection: "
    "`ansible-galaxy collection install --upgrade serving.sglang`; docs/releases.md in its repository lists them",
    "",
)
SEPARATOR = Kind(
    "environment.list_in_directory",
    ERROR,
    "a variable holds a list where one directory is expected",
    "The whole text is taken for the name of a directory, which does not exist.",
    "set the variable to one directory",
    "vllm-project/vllm#36077",
)
EMPTY_ENTRY = Kind(
    "environment.empty_entry",
    WARNING,
    "a list of directories has an empty entry",
    "An empty entry stands for the current directory: what lies there is run or loaded.",
    "remove the separator at the start, at the end, or the doubled one",
    "ld.so(8), execvp(3), GCC manual",
)
UNEXPANDED = Kind(
    "environment.unexpanded",
    ERROR,
    "a variable holds ~ or $NAME, which nobody expands",
    "systemd and SGLang take it literally; a directory of that name is made or missed.",
    "write the path in full",
    "systemd.exec(5), Environment=",
)
RELATIVE = Kind(
    "environment.relative_path",
    ERROR,
    "a variable holds a relative path",
    "It is relative to the working directory of the service, which is none of yours.",
    "write the path from the root",
    "systemd.exec(5), WorkingDirectory=",
)
NOT_DIRECTORY = Kind(
    "environment.not_a_directory",
    ERROR,
    "a variable names something that is no directory",
    "What is looked for there is not found, or what is written there fails.",
    "set the variable to a directory that exists",
    "",
)
