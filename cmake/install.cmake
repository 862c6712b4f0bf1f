# What `cmake --install` puts in place: the library with its headers, a CMake package (Tandem::tandem), a pkg-config
# file, the command, the lab, and the CUDA library where it is built.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tandem)
set_target_properties(tandem PROPERTIES VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_include_directories(tandem PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(tandem PUBLIC cxx_std_20)
install(TARGETS tandem EXPORT TandemTargets)
if(isa_levels MATCHES avx2 AND NOT TANDEM_CPU_LEVELS STREQUAL "all")
  install(CODE "message(WARNING \"This build has CPU kernels for ${TANDEM_CPU_LEVELS} alone, since ./tandem made it for this machine: what is installed refuses to compute on a lesser processor. For all: cmake --preset release && cmake --build --preset release\")")
endif()
install(EXPORT TandemTargets NAMESPACE Tandem:: DESTINATION ${package_dir})
install(DIRECTORY src/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
        PATTERN backends EXCLUDE PATTERN passes EXCLUDE PATTERN io/json.h EXCLUDE PATTERN train/settings_json.h EXCLUDE PATTERN train/loop EXCLUDE)

# Programs find the library relative to themselves, so that an installed tree may be moved.
file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
foreach(program tandem_cli tandem_lab)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
    install(TARGETS ${program} OPTIONAL)  # who builds only one of them installs that
  endif()
endforeach()
if(TARGET tandem_lab)  # what the lab reads: studies, workloads, claims, the peers' drivers
  install(DIRECTORY lab/studies lab/networks lab/drivers lab/listings DESTINATION ${CMAKE_INSTALL_DATADIR}/tandem/lab PATTERN __pycache__ EXCLUDE)
endif()
if(TARGET tandem_cuda)  # opened at run time, beside libtandem.so
  set_target_properties(tandem_cuda PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS tandem_cuda)
endif()

configure_package_config_file(cmake/TandemConfig.cmake.in ${CMAKE_BINARY_DIR}/generated/TandemConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/TandemConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/TandemConfig.cmake ${CMAKE_BINARY_DIR}/generated/TandemConfigVersion.cmake
        DESTINATION ${package_dir})
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/tandem.pc.in ${CMAKE_BINARY_DIR}/generated/tandem.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
