#include "doctor/html_strip.h"

#include <algorithm>
#include <cmath>

#include "doctor/html.h"
#include "doctor/words.h"

namespace bedplate::doctor {
namespace {

constexpr double kHeight = 100;    // units of a plot's own height
constexpr double kHeadroom = 1.4;  // so that a line at the top does not run through its scale
constexpr std::size_t kHits = 60;  // places that tell their figures when pointed at
constexpr Nanos kTicks = 7;        // at most, beside the one at 0

int y_of(double value, double top) {
  if (!(top > 0)) return static_cast<int>(kHeight);
  return static_cast<int>(std::lround(kHeight * (1 - std::clamp(value / top, 0.0, 1.0))));
}

// A line of steps over the columns for which `value` answers, with gaps where it does not;
// unchanged columns cost nothing.
template <typename Value>
std::string step_line(std::size_t columns, Value value) {
  std::string path;
  int last = -1;
  for (std::size_t i = 0; i < columns; ++i) {
    const int y = value(i);
    if (y < 0) {
      if (last >= 0) put(path, "H{}", i);
    } else if (last < 0) {
      put(path, "M{} {}", i, y);
    } else if (y != last) {
      put(path, "H{}V{}", i, y);
    }
    last = y;
  }
  if (last >= 0) put(path, "H{}", columns);
  return path;
}

// The area between two such lines, a closed piece for each stretch without a gap.
template <typename Low, typename High>
std::string step_area(std::size_t columns, Low low, High high) {
  std::string path;
  for (std::size_t i = 0; i < columns;) {
    if (high(i) < 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < columns && high(end) >= 0) ++end;
    put(path, "M{} {}", i, high(i));
    for (std::size_t k = i + 1; k < end; ++k) {
      if (high(k) != high(k - 1)) put(path, "H{}V{}", k, high(k));
    }
    put(path, "H{}V{}", end, low(end - 1));
    for (std::size_t k = end - 1; k > i; --k) {
      if (low(k - 1) != low(k)) put(path, "H{}V{}", k, low(k - 1));
    }
    put(path, "H{}Z", i);
    i = end;
  }
  return path;
}

void open_plot(std::string& page, std::size_t columns, int pixels, std::string_view top,
               std::string_view label) {
  put(page, "<div class=\"plot\">");
  if (!top.empty()) put(page, "<span class=\"top\">{}</span>", escaped(top));
  put(page,
      "<svg viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\" height=\"{}\" role=\"img\" "
      "aria-label=\"{}\">",
      columns, pixels, label);
}

void close_plot(std::string& page) { put(page, "</svg></div>\n"); }

std::string span_text(const TimeStrip& strip, std::size_t first, std::size_t last) {
  const Nanos width = strip.end - strip.begin;
  const auto at = [&](std::size_t column) {
    return strip.begin +
           static_cast<Nanos>(static_cast<double>(width) * static_cast<double>(column) /
                              static_cast<double>(strip.columns()));
  };
  return fmt::format("{:.1f}–{:.1f} s", seconds(at(first)), seconds(at(last)));
}

// Places to point at: `describe(first, last)` tells of the columns [first, last).
template <typename Describe>
void put_hits(std::string& page, const TimeStrip& strip, Describe describe) {
  const std::size_t hits = std::min(kHits, strip.columns());
  for (std::size_t i = 0; i < hits; ++i) {
    const std::size_t first = strip.columns() * i / hits;
    const std::size_t last = strip.columns() * (i + 1) / hits;
    const std::string text = describe(first, last);
    if (text.empty()) continue;
    put(page,
        "<rect class=\"hit\" x=\"{}\" width=\"{}\" height=\"100\"><title>{}: {}</title></rect>",
        first, last - first, span_text(strip, first, last), escaped(text));
  }
}

// One slow step would press all others flat: the axis ends at four times the typical step, what is
// above it is marked.
double step_axis(const TimeStrip& strip) {
  std::vector<double> means;
  for (const auto& column : strip.steps) {
    if (column) means.push_back(column->ms.mean);
  }
  const auto middle = means.begin() + static_cast<std::ptrdiff_t>(means.size() / 2);
  std::nth_element(means.begin(), middle, means.end());
  return std::min(strip.highest_ms, std::max(4 * *middle, 1e-6));
}

std::string step_hit(const TimeStrip& strip, std::size_t first, std::size_t last) {
  double steps = 0;
  double time = 0;
  double weight = 0;
  double high = 0;
  std::array<double, probe::kPhaseCount> phases{};
  for (std::size_t i = first; i < last; ++i) {
    if (!strip.steps[i]) continue;
    const StepColumn& column = *strip.steps[i];
    steps += column.steps;
    time += column.ms.mean;
    weight += 1;
    high = std::max(high, column.ms.high);
    for (std::size_t p = 0; p < phases.size(); ++p) phases[p] += column.phases[p];
  }
  if (weight == 0) return {};
  std::string text = fmt::format("{:.0f} steps, mean {}, slowest {}", steps,
                                 milliseconds_text(time / weight), milliseconds_text(high));
  for (std::size_t p = 0; p < phases.size(); ++p) {
    if (phases[p] / weight >= 0.005)
      put(text, ", {} {}", phase_label(probe::kPhaseNames[p]), human_share(phases[p] / weight));
  }
  return text;
}

void put_steps(std::string& page, const TimeStrip& strip) {
  const double top = step_axis(strip);
  const bool clipped = strip.highest_ms > top * 1.001;
  put(page, "<div class=\"lane\">step time<small>coloured by phase; line: slowest</small></div>");
  open_plot(page, strip.columns(), 120, milliseconds_text(top), "step time by phase");
  std::vector<double> below(strip.columns(), 0.0);
  for (std::size_t phase = 0; phase < probe::kPhaseCount; ++phase) {
    std::vector<double> above = below;
    bool any = false;
    for (std::size_t i = 0; i < strip.columns(); ++i) {
      if (!strip.steps[i]) continue;
      above[i] += strip.steps[i]->phases[phase] * strip.steps[i]->ms.mean;
      any = any || strip.steps[i]->phases[phase] > 0;
    }
    if (any) {
      const auto y = [&](const std::vector<double>& line) {
        return [&](std::size_t i) { return strip.steps[i] ? y_of(line[i], top) : -1; };
      };
      put(page, "<path class=\"p{}\" d=\"{}\"/>", phase,
          step_area(strip.columns(), y(below), y(above)));
    }
    below = std::move(above);
  }
  put(page, "<path class=\"high\" d=\"{}\"/>", step_line(strip.columns(), [&](std::size_t i) {
        return strip.steps[i] ? y_of(strip.steps[i]->ms.high, top) : -1;
      }));
  std::string evaluation;
  for (std::size_t i = 0; i < strip.columns();) {
    std::size_t end = i;
    while (end < strip.columns() && strip.steps[end] && strip.steps[end]->evaluation) ++end;
    if (end > i) put(evaluation, "M{} 0H{}V100H{}Z", i, end, i);
    i = end + 1;
  }
  if (!evaluation.empty()) put(page, "<path class=\"eval\" d=\"{}\"/>", evaluation);
  for (std::size_t i = 0; clipped && i < strip.columns(); ++i) {
    if (strip.steps[i] && strip.steps[i]->ms.high > top * 1.001)
      put(page, "<rect class=\"clip\" x=\"{}\" width=\"1.5\" height=\"5\"/>", i);
  }
  put_hits(page, strip,
           [&](std::size_t first, std::size_t last) { return step_hit(strip, first, last); });
  close_plot(page);
  std::string about =
      clipped ? fmt::format("red: above the axis, up to {}. ", milliseconds_text(strip.highest_ms))
              : "";
  if (!evaluation.empty()) about += "grey: evaluation, not counted in the median.";
  if (!about.empty())
    put(page, "<div class=\"lane\"></div><div class=\"soft source\">{}</div>", about);
}

// Where the evidence of each finding holds, a row a finding.
void put_marks(std::string& page, const TimeStrip& strip, const Report& report) {
  const auto columns = static_cast<double>(strip.columns());
  const auto span = static_cast<double>(strip.end - strip.begin);
  for (const auto& finding : report.findings) {
    std::vector<bool> held(strip.columns());
    bool any = false;
    for (const auto& [begin, end] : finding.when) {
      const double first =
          std::clamp(static_cast<double>(begin - strip.begin) / span * columns, 0.0, columns);
      const double last =
          std::clamp(static_cast<double>(end - strip.begin) / span * columns, 0.0, columns);
      for (auto i = static_cast<std::size_t>(first);
           static_cast<double>(i) < std::max(last, first + 1e-9) && i < held.size(); ++i)
        any = held[i] = true;
    }
    if (!any) continue;
    std::string path;
    for (std::size_t i = 0; i < held.size();) {
      std::size_t end = i;
      while (end < held.size() && held[end]) ++end;
      if (end > i) put(path, "M{} 15H{}V85H{}Z", i, end, i);
      i = end + 1;
    }
    put(page, "<div class=\"lane\">{}<small>when its evidence holds</small></div>",
        escaped(finding.rule));
    open_plot(page, strip.columns(), 20, "", escaped(finding.rule));
    put(page, "<path class=\"mark\" d=\"{}\"><title>{}</title></path>", path,
        escaped(title_of(finding)));
    close_plot(page);
  }
}

void put_lane_group(std::string& page, const TimeStrip& strip,
                    const std::vector<const Lane*>& lanes) {
  double top = 0;
  for (const Lane* lane : lanes) top = std::max(top, lane->top);
  const double axis = top * kHeadroom;
  put(page, "<div class=\"lane\">");
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    put(page, "<div title=\"{}\"><i class=\"l{}\"></i>{}</div>", escaped(lanes[i]->source), i % 3,
        escaped(lanes[i]->name));
  }
  put(page, "</div>");
  open_plot(page, strip.columns(), 56, level_text(lanes.front()->unit, top),
            escaped(lanes.front()->group));
  put(page, "<path class=\"scale\" d=\"M0 {}H{}\"/>", y_of(top, axis), strip.columns());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Lane& lane = *lanes[i];
    const auto y = [&](auto member) {
      return [&lane, axis, member](std::size_t column) {
        return lane.columns[column] ? y_of((*lane.columns[column]).*member, axis) : -1;
      };
    };
    put(page, "<g class=\"l{}\"><path class=\"band\" d=\"{}\"/>", i % 3,
        step_area(strip.columns(), y(&Level::low), y(&Level::high)));
    put(page, "<path class=\"mean\" d=\"{}\"/></g>", step_line(strip.columns(), y(&Level::mean)));
  }
  put_hits(page, strip, [&](std::size_t first, std::size_t last) {
    std::string text;
    for (const Lane* lane : lanes) {
      double sum = 0;
      double seen = 0;
      double high = 0;
      for (std::size_t i = first; i < last; ++i) {
        if (!lane->columns[i]) continue;
        sum += lane->columns[i]->mean;
        high = std::max(high, lane->columns[i]->high);
        seen += 1;
      }
      if (seen == 0) continue;
      if (!text.empty()) text += "; ";
      put(text, "{} {}, at most {}", lane->name, level_text(lane->unit, sum / seen),
          level_text(lane->unit, high));
    }
    return text;
  });
  close_plot(page);
}

// The shortest round time of which at most kTicks go into the span.
Nanos tick_of(Nanos span) {
  constexpr Nanos kMinute = 60 * kSecond;
  constexpr Nanos kHour = 60 * kMinute;
  constexpr Nanos kRound[] = {kMillisecond,       2 * kMillisecond,
                              5 * kMillisecond,   10 * kMillisecond,
                              20 * kMillisecond,  50 * kMillisecond,
                              100 * kMillisecond, 200 * kMillisecond,
                              500 * kMillisecond, kSecond,
                              2 * kSecond,        5 * kSecond,
                              10 * kSecond,       20 * kSecond,
                              30 * kSecond,       kMinute,
                              2 * kMinute,        5 * kMinute,
                              10 * kMinute,       20 * kMinute,
                              30 * kMinute,       kHour,
                              2 * kHour,          4 * kHour,
                              6 * kHour,          12 * kHour,
                              24 * kHour};
  for (const Nanos tick : kRound) {
    if (span / tick <= kTicks) return tick;
  }
  return (span / (24 * kHour) / kTicks + 1) * 24 * kHour;
}

std::string tick_text(Nanos t, Nanos tick) {
  if (t == 0) return "0";
  if (tick % (3600 * kSecond) == 0) return fmt::format("{} h", t / (3600 * kSecond));
  if (tick % (60 * kSecond) == 0) return fmt::format("{} min", t / (60 * kSecond));
  return human_duration(t);
}

void put_axis(std::string& page, const TimeStrip& strip) {
  put(page, "<div class=\"lane\"></div><div class=\"axis\">");
  const Nanos span = strip.end - strip.begin;
  const Nanos tick = tick_of(span);
  for (Nanos t = 0; t <= span; t += tick) {
    const double at =
        100.0 * static_cast<double>(t) / static_cast<double>(std::max<Nanos>(span, 1));
    put(page, "<span{} style=\"left:{:.2f}%\">{}</span>", at > 96 ? " class=\"end\"" : "", at,
        tick_text(t, tick));
  }
  put(page, "</div>\n");
}

}  // namespace

void put_time_strip(std::string& page, const TimeStrip& strip, const Report& report) {
  if (strip.columns() == 0 || (!strip.has_steps && strip.lanes.empty())) return;
  put(page,
      "<h2>Time <small>{} from left to right</small></h2>\n<div class=\"panel\"><div "
      "class=\"strip\">\n",
      human_duration(strip.end - strip.begin));
  if (strip.has_steps) put_steps(page, strip);
  put_marks(page, strip, report);
  std::vector<std::string> quiet;
  for (std::size_t i = 0; i < strip.lanes.size();) {
    std::vector<const Lane*> group;
    const std::string& name = strip.lanes[i].group;
    for (; i < strip.lanes.size() && strip.lanes[i].group == name; ++i) {
      if (strip.lanes[i].quiet()) {
        quiet.push_back(strip.lanes[i].name);
      } else {
        group.push_back(&strip.lanes[i]);
      }
    }
    if (!group.empty()) put_lane_group(page, strip, group);
  }
  put_axis(page, strip);
  put(page, "</div>");
  if (!quiet.empty()) {
    std::string list;
    for (const auto& name : quiet) put(list, "{}{}", list.empty() ? "" : ", ", escaped(name));
    put(page, "<p class=\"about\">Quiet all the time (under 1 % or 1 MiB/s): {}.</p>", list);
  }
  put(page, "</div>\n");
}

}  // namespace bedplate::doctor
