#include "doctor/series_view.h"

#include <fmt/format.h>

#include <algorithm>

namespace bedplate::doctor {
std::string proc(int pid) { return fmt::format("proc/{}", pid); }

SeriesView::SeriesView(const probe::RunData& run, Nanos end) : end_(end) {
  for (const probe::Series& series : run.series) {
    if (series.samples.empty()) continue;
    Entry entry{&series, {}};
    if (series.kind == probe::SeriesKind::kCounter) {
      entry.grown.reserve(series.samples.size());
      double sum = 0;
      for (std::size_t i = 0; i < series.samples.size(); ++i) {
        if (i > 0) {
          sum += std::max(0.0, static_cast<double>(series.samples[i].value) -
                                   static_cast<double>(series.samples[i - 1].value));
        }
        entry.grown.push_back(sum);
      }
    }
    entries_.emplace(std::pair<std::string_view, std::string_view>(series.subject, series.metric),
                     std::move(entry));
  }
}

const SeriesView::Entry* SeriesView::entry(std::string_view subject,
                                           std::string_view metric) const {
  const auto it = entries_.find({subject, metric});
  return it == entries_.end() ? nullptr : &it->second;
}

const probe::Series* SeriesView::find(std::string_view subject, std::string_view metric) const {
  const Entry* found = entry(subject, metric);
  return found == nullptr ? nullptr : found->series;
}

std::vector<std::string_view> SeriesView::subjects(std::string_view prefix) const {
  std::vector<std::string_view> out;
  for (auto it = entries_.lower_bound({prefix, {}});
       it != entries_.end() && it->first.first.starts_with(prefix); ++it) {
    if (out.empty() || out.back() != it->first.first) out.push_back(it->first.first);
  }
  return out;
}

std::string SeriesView::source(std::string_view subject, std::string_view metric) const {
  const probe::Series* series = find(subject, metric);
  if (series != nullptr && !series->source.empty()) return series->source;
  return fmt::format("{} {}", subject, metric);
}

double SeriesView::at(const Entry& entry, Nanos t) {
  const auto& samples = entry.series->samples;
  const auto after =
      std::upper_bound(samples.begin(), samples.end(), t,
                       [](Nanos at, const probe::Sample& sample) { return at < sample.t; });
  if (after == samples.begin()) return 0;
  const auto n = static_cast<std::size_t>(after - samples.begin()) - 1;
  if (after == samples.end()) return entry.grown[n];
  const double part =
      static_cast<double>(t - samples[n].t) / static_cast<double>(after->t - samples[n].t);
  return entry.grown[n] + (entry.grown[n + 1] - entry.grown[n]) * part;
}

std::optional<SeriesView::Growth> SeriesView::grown(std::string_view subject,
                                                    std::string_view metric, Window w) const {
  const Entry* found = entry(subject, metric);
  if (found == nullptr || found->grown.empty()) return std::nullopt;
  const auto& samples = found->series->samples;
  const Window seen = overlap(w, {samples.front().t, std::max(end_, samples.back().t)});
  if (length(seen) == 0) return std::nullopt;
  return Growth{std::max(0.0, at(*found, seen.end) - at(*found, seen.begin)), length(seen)};
}

std::optional<double> SeriesView::growth(std::string_view subject, std::string_view metric,
                                         Window w) const {
  const auto g = grown(subject, metric, w);
  if (!g) return std::nullopt;
  return g->amount;
}

std::optional<double> SeriesView::rate(std::string_view subject, std::string_view metric,
                                       Window w) const {
  const auto g = grown(subject, metric, w);
  if (!g) return std::nullopt;
  return g->amount / seconds(g->over);
}

std::optional<double> SeriesView::share(std::string_view subject, std::string_view metric,
                                        Window w) const {
  const auto g = grown(subject, metric, w);
  if (!g) return std::nullopt;
  return g->amount / static_cast<double>(g->over);
}

std::optional<double> SeriesView::share_inside(std::string_view subject, std::string_view metric,
                                               Window w, Window inside) const {
  const Entry* found = entry(subject, metric);
  if (found == nullptr || found->grown.empty()) return std::nullopt;
  const auto& samples = found->series->samples;
  const auto by_time = [](const probe::Sample& sample, Nanos t) { return sample.t < t; };
  const auto first = std::lower_bound(samples.begin(), samples.end(), inside.begin, by_time);
  auto last = std::lower_bound(samples.begin(), samples.end(), inside.end, by_time);
  if (first == samples.end() || last - first < 2) return share(subject, metric, w);
  --last;
  const Nanos length_w = length(w);
  if (w.end <= first->t) w = {first->t, std::min(first->t + length_w, last->t)};
  if (w.begin >= last->t) w = {std::max(first->t, last->t - length_w), last->t};
  return share(subject, metric, overlap(w, {first->t, last->t}));
}

template <typename Visit>
void SeriesView::levels(const Entry& entry, Window w, Visit visit) {
  const auto& samples = entry.series->samples;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Nanos until = i + 1 < samples.size() ? samples[i + 1].t : std::max(w.end, samples[i].t);
    const Window part = overlap(w, {samples[i].t, until});
    if (length(part) > 0) visit(static_cast<double>(samples[i].value), length(part));
  }
}

std::optional<double> SeriesView::mean(std::string_view subject, std::string_view metric,
                                       Window w) const {
  const Entry* found = entry(subject, metric);
  if (found == nullptr) return std::nullopt;
  double sum = 0;
  double over = 0;
  levels(*found, w, [&](double level, Nanos t) {
    sum += level * static_cast<double>(t);
    over += static_cast<double>(t);
  });
  if (over <= 0) return std::nullopt;
  return sum / over;
}

std::optional<double> SeriesView::highest(std::string_view subject, std::string_view metric,
                                          Window w) const {
  const Entry* found = entry(subject, metric);
  std::optional<double> best;
  if (found == nullptr) return best;
  levels(*found, w, [&](double level, Nanos) { best = best ? std::max(*best, level) : level; });
  return best;
}

std::optional<double> SeriesView::last(std::string_view subject, std::string_view metric,
                                       Window w) const {
  const Entry* found = entry(subject, metric);
  std::optional<double> out;
  if (found == nullptr) return out;
  levels(*found, w, [&](double level, Nanos) { out = level; });
  return out;
}

}  // namespace bedplate::doctor
