# cmake -DREADME=README.md -DOUTPUT=out.cpp -P readme_program.cmake
# Writes the first ```cpp block of the readme to a source file, so that the tests can compile and run it.
file(READ ${README} text)
string(FIND "${text}" "```cpp\n" begin)
if(begin EQUAL -1)
  message(FATAL_ERROR "${README}: there is no block that begins with ```cpp.")
endif()
math(EXPR begin "${begin} + 7")
string(SUBSTRING "${text}" ${begin} -1 text)
string(FIND "${text}" "\n```" end)
string(SUBSTRING "${text}" 0 ${end} program)
file(WRITE ${OUTPUT} "${program}\n")
