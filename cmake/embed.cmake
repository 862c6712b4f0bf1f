# embed(TARGET FILE...): puts the text of each FILE into TARGET. The text of report.css is
#   extern const char* const tandem_embedded_report_css;
# The build writes the source of these strings, and writes it again when a file changes.
function(embed target)
  set(files ${ARGN})
  list(TRANSFORM files PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/generated/${target}_embedded.cpp)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_FILE})
  add_custom_command(OUTPUT ${source}
                     COMMAND ${CMAKE_COMMAND} "-DINPUTS=${files}" -DOUTPUT=${source} -P ${script}
                     DEPENDS ${files} ${script} COMMENT "Embedding files in ${target}" VERBATIM)
  target_sources(${target} PRIVATE ${source})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()
# Run by the command above.
set(text "// Made by cmake/embed.cmake: files as text.\n")
foreach(input ${INPUTS})
  cmake_path(GET input FILENAME name)
  string(REPLACE "." "_" name ${name})
  file(READ ${input} content)
  string(APPEND text "\nextern const char* const tandem_embedded_${name};\n"
         "const char* const tandem_embedded_${name} = R\"tandem_text(${content})tandem_text\";\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
