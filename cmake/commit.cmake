# Writes the header OUTPUT that names the commit which SOURCE is at, where git knows it; only where it changed.
#   cmake -DSOURCE=… -DOUTPUT=… -P commit.cmake
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE commit RESULT_VARIABLE status ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT status EQUAL 0)
  set(commit "")
else()
  execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND commit " with changes")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once\n#define TANDEM_COMMIT \"@commit@\"\n" @ONLY)
