# list_functions(LIST PATTERN SOURCE...): generated/lists/LIST.inc has a line TD_LISTED(function) for each function that one
# of the sources defines on a line of its own; PATTERN is a regular expression whose first group is the name. So an op, a family
# of kernels or of test cases is known by being there:
#   #define TD_LISTED(function) void function();
#   #include "lists/cuda_kernels.inc"
function(list_functions list pattern)
  set(text "")
  foreach(source ${ARGN})
    file(STRINGS ${source} lines REGEX "${pattern}")
    foreach(line ${lines})
      string(REGEX REPLACE "^.*${pattern}.*$" "\\1" name "${line}")
      string(APPEND text "TD_LISTED(${name})\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/lists/${list}.inc CONTENT "${text}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
endfunction()

# read_mark(FILE MARK RESULT): the word after "// MARK: " near the top of a source; empty where there is none.
function(read_mark file mark result)
  file(READ ${file} head LIMIT 2000)
  set(${result} "" PARENT_SCOPE)
  if(head MATCHES "// ${mark}: ([a-z]+)")
    set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
endfunction()
