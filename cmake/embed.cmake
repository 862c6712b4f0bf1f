# cmake -DINPUTS=a.h,b.h -DOUTPUT=out.cpp -P embed.cmake
# Writes a source file in which the text of each NAME.h is the string tandem_embedded_NAME.
string(REPLACE "," ";" INPUTS "${INPUTS}")
set(text "// Made by cmake/embed.cmake: headers as text, for the run-time compiler.\n")
foreach(input ${INPUTS})
  cmake_path(GET input STEM name)
  file(READ ${input} content)
  string(APPEND text "\nextern const char* const tandem_embedded_${name};\n"
         "const char* const tandem_embedded_${name} = R\"tandem_text(${content})tandem_text\";\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
