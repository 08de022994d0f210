#include "bench/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace bedplate::bench {
namespace {

using nlohmann::ordered_json;

std::string shown(const std::filesystem::path& path) { return to_utf8(path.native()); }

std::string bytes(std::int64_t n) { return human_bytes(static_cast<double>(n)); }

// A table of right-aligned columns; `rows` begin with their names.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    text += "  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - display_width(row[i]), ' ');
      text += i == 0 ? row[i] + pad : "   " + pad + row[i];
    }
    text += '\n';
  }
  return text;
}

std::vector<std::string> latencies(const Figures& figures) {
  return {human_duration(figures.median), human_duration(figures.p99),
          human_duration(figures.longest)};
}

std::string notes_text(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += fmt::format("  note: {}\n", note);
  return text.empty() ? text : "\n" + text;
}

std::string verdict_text(const Verdict& verdict) {
  if (!verdict.need) return {};
  const Need& need = *verdict.need;
  std::string text =
      fmt::format("\n  the job needs {}/s and {} samples a second ({} ranks × {} samples/s × {})\n",
                  human_bytes(need.bytes_per_second()), human_count(need.reads_per_second()),
                  need.ranks, human_count(need.samples_per_second), human_bytes(need.sample_bytes));
  for (const Judgement& judgement : verdict.judgements) {
    text += fmt::format("  {} (margin {:.2f} ×): {}\n", judgement.gives, judgement.margin,
                        judgement.fits() ? "fits" : "does not fit");
    for (const std::string& advice : judgement.advice)
      text += fmt::format("    would help: {}\n", advice);
  }
  return text + fmt::format("  {}\n", verdict.fits() ? "fits" : "does not fit");
}

ordered_json json_of(const Figures& figures) {
  return {{"calls", figures.calls},
          {"amount", figures.amount},
          {"seconds", seconds(figures.length)},
          {"calls_per_second", figures.calls_per_second()},
          {"amount_per_second", figures.amount_per_second()},
          {"median_ns", figures.median},
          {"p99_ns", figures.p99},
          {"longest_ns", figures.longest}};
}

void add(ordered_json& out, const Verdict& verdict) {
  if (!verdict.need) return;
  const Need& need = *verdict.need;
  out["need"] = {{"ranks", need.ranks},
                 {"samples_per_second_of_a_rank", need.samples_per_second},
                 {"sample_bytes", need.sample_bytes},
                 {"samples_per_second", need.reads_per_second()},
                 {"bytes_per_second", need.bytes_per_second()}};
  auto& list = out["judgements"] = ordered_json::array();
  for (const Judgement& judgement : verdict.judgements) {
    list.push_back({{"gives", judgement.gives},
                    {"margin", judgement.margin},
                    {"fits", judgement.fits()},
                    {"advice", judgement.advice}});
  }
  out["fits"] = verdict.fits();
}

}  // namespace

bool Verdict::fits() const { return std::ranges::all_of(judgements, &Judgement::fits); }

std::string render_text(const DiskResult& disk, const Verdict& verdict) {
  std::string text = fmt::format(
      "disk under {}\n"
      "  test file of {}, incompressible, written at {}/s\n"
      "  {}, {}, blocks of {}, {} in flight\n\n",
      shown(disk.folder), bytes(disk.size), human_bytes(disk.filling.amount_per_second()),
      disk.engine,
      disk.page_cache == PageCache::kPast ? "O_DIRECT" : "through the emptied page cache",
      bytes(disk.block), disk.depth);
  std::vector<std::vector<std::string>> rows = {
      {"", "bandwidth", "IOPS", "median", "P99", "longest"}};
  for (const DiskPhase& phase : disk.phases) {
    rows.push_back({std::string(phase.name), human_bytes(phase.figures.amount_per_second()) + "/s",
                    human_count(phase.figures.calls_per_second())});
    std::ranges::move(latencies(phase.figures), std::back_inserter(rows.back()));
  }
  return text + table(rows) + notes_text(disk.notes) + verdict_text(verdict);
}

std::string render_text(const MetaResult& meta, const Verdict& verdict) {
  std::string text =
      fmt::format("small files under {}\n  {} files of {}, {} threads, {}\n\n", shown(meta.folder),
                  meta.files, bytes(meta.bytes), meta.threads,
                  meta.folders == Folders::kShared ? "one folder for all" : "a folder for each");
  std::vector<std::vector<std::string>> rows = {{"", "a second", "median", "P99", "longest"}};
  for (const MetaPhase& phase : meta.phases) {
    rows.push_back({std::string(phase.name), human_count(phase.figures.amount_per_second())});
    std::ranges::move(latencies(phase.figures), std::back_inserter(rows.back()));
  }
  return text + table(rows) + notes_text(meta.notes) + verdict_text(verdict);
}

std::string render_json(const DiskResult& disk, const Verdict& verdict) {
  ordered_json out = {{"bench", "disk"},           {"path", shown(disk.folder)},
                      {"engine", disk.engine},     {"direct", disk.page_cache == PageCache::kPast},
                      {"block_bytes", disk.block}, {"depth", disk.depth},
                      {"file_bytes", disk.size},   {"filling", json_of(disk.filling)}};
  auto& phases = out["phases"] = ordered_json::object();
  for (const DiskPhase& phase : disk.phases)
    phases[std::string(phase.name)] = json_of(phase.figures);
  out["notes"] = disk.notes;
  add(out, verdict);
  return out.dump(2) + "\n";
}

std::string render_json(const MetaResult& meta, const Verdict& verdict) {
  ordered_json out = {
      {"bench", "meta"},         {"path", shown(meta.folder)},
      {"files", meta.files},     {"file_bytes", meta.bytes},
      {"threads", meta.threads}, {"shared_folder", meta.folders == Folders::kShared}};
  auto& phases = out["phases"] = ordered_json::object();
  for (const MetaPhase& phase : meta.phases)
    phases[std::string(phase.name)] = json_of(phase.figures);
  out["notes"] = meta.notes;
  add(out, verdict);
  return out.dump(2) + "\n";
}

}  // namespace bedplate::bench
