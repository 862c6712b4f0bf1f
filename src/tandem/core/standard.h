// Refuses older standards of C++ by one line. Every header that includes no other header of Tandem includes this one first.
#pragma once

#if __cplusplus <= 201703L
#error "Tandem needs C++20: compile with -std=c++20, or link the CMake target Tandem::tandem, which sets it."
#include "tandem/core/standard.h: needs C++20"  // no such file: ends the compilation before hundreds of errors
#endif
