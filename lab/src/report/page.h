// The frame of an HTML page: one file that needs no network. Style for light, dark, phones and paper, and a little
// script: tables are sorted by a click on a head, the colours can be switched. Everything is readable without it.
#pragma once

#include <string>

namespace tandem::lab {

/// A whole page around `body`, which is HTML already.
std::string html_page(const std::string& title, const std::string& body);

}  // namespace tandem::lab
