// The phases of a step as one bar of text, and its legend.
#pragma once

#include <map>
#include <string>

#include "doctor/text_page.h"

namespace bedplate::doctor {

// `width` cells for the shares of `phases`, by largest remainder. Each phase has its own glyph and,
// in colour, its own ink.
std::string phase_bar(const TextPage& page, const std::map<std::string, double>& phases,
                      std::size_t width);

// "░ input wait 41 %   █ compute 39 %", broken between entries; what is below 0.05 % is left out.
void phase_legend(TextPage& page, const std::map<std::string, double>& phases);

}  // namespace bedplate::doctor
