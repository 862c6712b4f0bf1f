// For the header that is precompiled for all tests of the lab (CMakeLists.txt): it needs a program of its own.
int main() {}
