// Nothing but the includes of the documentation's programs, precompiled for all of them.
int main() {}
