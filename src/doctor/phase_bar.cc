#include "doctor/phase_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/units.h"
#include "doctor/layout.h"
#include "doctor/words.h"
#include "probe/phase.h"

namespace bedplate::doctor {
namespace {

struct PhaseLook {
  std::string_view glyph;  // tells the phases apart where there is no colour
  Ink ink;
};

// In the order of probe::Phase.
constexpr std::array<PhaseLook, probe::kPhaseCount> kPhaseLooks = {{{"░", Ink::kYellow},
                                                                    {"▚", Ink::kMagenta},
                                                                    {"█", Ink::kGreen},
                                                                    {"▒", Ink::kBlue},
                                                                    {"▓", Ink::kCyan},
                                                                    {"▞", Ink::kRed},
                                                                    {"▟", Ink::kMagenta},
                                                                    {"·", Ink::kDim}}};

std::string repeated(std::string_view glyph, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += glyph;
  return out;
}

// Cells a phase, by largest remainder: they sum to `width` whenever anything is there.
std::array<std::size_t, probe::kPhaseCount> cells_of(const std::map<std::string, double>& phases,
                                                     std::size_t width) {
  std::array<double, probe::kPhaseCount> shares{};
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto found = phases.find(std::string(probe::kPhaseNames[i]));
    if (found != phases.end() && found->second > 0) shares[i] = found->second;
  }
  std::array<std::size_t, probe::kPhaseCount> cells{};
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (!(total > 0) || !std::isfinite(total)) return cells;
  std::array<std::size_t, probe::kPhaseCount> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto exact = [&](std::size_t i) { return shares[i] / total * static_cast<double>(width); };
  std::size_t left = width;
  for (std::size_t i = 0; i < cells.size(); ++i)
    left -= cells[i] = static_cast<std::size_t>(exact(i));
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return exact(a) - std::floor(exact(a)) > exact(b) - std::floor(exact(b));
  });
  for (std::size_t i = 0; i < left && i < order.size(); ++i) ++cells[order[i]];
  return cells;
}

}  // namespace

std::string phase_bar(const TextPage& page, const std::map<std::string, double>& phases,
                      std::size_t width) {
  std::string out;
  const auto cells = cells_of(phases, width);
  for (std::size_t i = 0; i < cells.size(); ++i)
    out += page.ink(repeated(kPhaseLooks[i].glyph, cells[i]), kPhaseLooks[i].ink);
  return out;
}

void phase_legend(TextPage& page, const std::map<std::string, double>& phases) {
  std::string line = "  ";
  std::size_t used = 2;
  for (std::size_t i = 0; i < kPhaseLooks.size(); ++i) {
    const auto found = phases.find(std::string(probe::kPhaseNames[i]));
    if (found == phases.end() || !(found->second >= 0.0005)) continue;
    const std::string words =
        fmt::format(" {} {}", phase_label(found->first), human_share(found->second));
    const std::size_t wide = 1 + columns(words);
    if (used > 2 && used + 3 + wide > page.width()) {
      page.line(line);
      line = "  ";
      used = 2;
    }
    if (used > 2) line += "   ", used += 3;
    line += page.ink(kPhaseLooks[i].glyph, kPhaseLooks[i].ink) + words;
    used += wide;
  }
  if (used > 2) page.line(line);
}

}  // namespace bedplate::doctor
