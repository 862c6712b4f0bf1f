# libtandem_cuda.so: everything that needs CUDA, beside libtandem.so, opened when a CUDA device is asked for.
find_program(NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
if(NVCC AND NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  set(CMAKE_CUDA_COMPILER ${NVCC})
endif()
if(NVCC)
  cmake_path(GET NVCC PARENT_PATH cuda_bin)
  cmake_path(GET cuda_bin PARENT_PATH cuda_root)
  if(NOT DEFINED CUDAToolkit_ROOT AND NOT DEFINED ENV{CUDAToolkit_ROOT})
    set(CUDAToolkit_ROOT ${cuda_root})
  endif()
endif()
find_package(CUDAToolkit QUIET)
# cuDNN comes with the toolkit's folders, as a package of the system, or in a folder of its own (CUDNN_PATH).
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDNN_PATH} ENV CUDNN_PATH ${CUDAToolkit_INCLUDE_DIRS}
          PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDNN_PATH} ENV CUDNN_PATH ${CUDAToolkit_LIBRARY_DIR}
             PATH_SUFFIXES lib lib64)

set(cuda_missing "")
foreach(part NVCC CUDAToolkit_FOUND CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
  if(NOT ${part})
    string(APPEND cuda_missing " ${part}")
  endif()
endforeach()
foreach(part cudart cublas cublasLt cusolver cufft nvrtc cuda_driver)
  if(NOT TARGET CUDA::${part})
    string(APPEND cuda_missing " CUDA::${part}")
  endif()
endforeach()
if(cuda_missing)
  set(message "libtandem_cuda.so cannot be built here; not found:${cuda_missing}.")
  if(TANDEM_CUDA STREQUAL "AUTO")
    message(STATUS "${message}")
    return()
  endif()
  message(FATAL_ERROR "${message} Install CUDA and cuDNN, or build with TANDEM_CUDA=OFF.")
endif()

set(CMAKE_CUDA_ARCHITECTURES ${TANDEM_CUDA_ARCHITECTURES})
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")

file(GLOB cuda_sources CONFIGURE_DEPENDS src/tandem/backends/cuda/*.cpp src/tandem/backends/cuda/*.cu)
if(NOT cuda_sources)
  return()
endif()

list_functions(cuda_kernels "${a_family}" ${cuda_sources})
add_library(tandem_cuda SHARED ${cuda_sources})
include(cmake/embed.cmake)  # headers whose text the run-time compiler needs
embed(tandem_cuda src/tandem/core/half.h src/tandem/ops/elementary_functions.h src/tandem/ops/scalar_functions.h)
# Pointwise kernels round after each step, as on the CPU: contraction off. Only matrix products and convolutions, which
# ask for fma, are free of this.
foreach(source ${cuda_sources})
  cmake_path(GET source FILENAME name)
  if(name MATCHES "\\.cu$" AND NOT name MATCHES "gemm|conv")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS --fmad=false)
  endif()
endforeach()
string(REPLACE ";" "," host_flags "-Wall;-Wno-parentheses;${floating_point_flags}")
target_compile_options(tandem_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${host_flags} --Werror=all-warnings --expt-relaxed-constexpr
                             --expt-extended-lambda>)
target_include_directories(tandem_cuda PRIVATE ${CMAKE_BINARY_DIR}/generated)
target_include_directories(tandem_cuda SYSTEM PRIVATE ${CUDNN_INCLUDE_DIR})
if(TARGET CUDA::cupti)  # its header alone, which may have a folder of its own; the library is opened at run time
  target_include_directories(tandem_cuda SYSTEM PRIVATE
                             $<TARGET_PROPERTY:CUDA::cupti,INTERFACE_INCLUDE_DIRECTORIES>)
endif()
set_target_properties(tandem_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Shared)
target_link_libraries(tandem_cuda PRIVATE tandem tandem_flags CUDA::cudart CUDA::cublas CUDA::cublasLt CUDA::cusolver
                      CUDA::cufft CUDA::nvrtc CUDA::cuda_driver ${CUDNN_LIBRARY})
