// bedplate data stat: how many samples, how large, made of what.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "data/look.h"

namespace bedplate::cli {
namespace {

struct Options {
  ShardsOptions shards;
  std::int64_t looks = 1000;
  bool json = false;
};

std::string size(std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

std::string type_of(const data::FieldFacts& field) {
  std::string type(data::name(field.dtype));
  if (field.other_dtypes) return type + ", other types too";
  if (field.other_dimensions) return type + "[…]";
  if (field.shape.empty()) return type;
  std::string shape;
  for (const std::int64_t n : field.shape)
    shape += (shape.empty() ? "" : ", ") + (n == data::kAny ? "any" : fmt::format("{}", n));
  return fmt::format("{}[{}]", type, shape);
}

// A bar for each power of two between the smallest and the largest.
std::string histogram(const std::map<int, std::int64_t>& by_size) {
  constexpr double kWidest = 40;
  std::string text;
  if (by_size.empty()) return text;
  std::int64_t most = 0;
  for (const auto& [power, samples] : by_size) most = std::max(most, samples);
  for (int power = by_size.begin()->first; power <= by_size.rbegin()->first; ++power) {
    const auto found = by_size.find(power);
    const std::int64_t samples = found == by_size.end() ? 0 : found->second;
    const double share = static_cast<double>(samples) / static_cast<double>(most);
    std::string bar;
    for (int i = 0; i < static_cast<int>(share * kWidest + 0.5); ++i) bar += "█";
    if (bar.empty() && samples > 0) bar = "▏";
    const std::string from = power < 0 ? "0 B" : size(std::int64_t{1} << power);
    text += fmt::format("  {:>8}  {} {}\n", from, bar, samples);
  }
  return text;
}

std::string as_text(const data::DataFacts& facts) {
  std::string text = fmt::format("{} samples in {} shard{} ({}), {}\n", facts.samples, facts.shards,
                                 facts.shards == 1 ? "" : "s", fmt::join(facts.formats, ", "),
                                 size(facts.object_bytes));
  text += fmt::format("a shard has {} samples; the open data set takes {} of memory\n",
                      facts.fewest_in_shard == facts.most_in_shard
                          ? fmt::format("{}", facts.most_in_shard)
                          : fmt::format("{} to {}", facts.fewest_in_shard, facts.most_in_shard),
                      size(facts.index_bytes));
  if (facts.without_index > 0) {
    text += fmt::format(
        "{} of {} shards that must be read through without one have a fresh index beside them{}\n",
        facts.indexed, facts.without_index,
        facts.indexed < facts.without_index ? "; bedplate data index makes the others" : "");
  }
  if (facts.samples == 0) return text;
  text +=
      fmt::format("\nfields, by {} of the samples:\n",
                  facts.looked_at == facts.samples ? "all" : fmt::format("{}", facts.looked_at));
  std::size_t widest = 0;
  std::size_t widest_type = 0;
  for (const auto& field : facts.fields) {
    widest = std::max(widest, display_width(to_utf8(field.name)));
    widest_type = std::max(widest_type, type_of(field).size());
  }
  for (const auto& field : facts.fields) {
    const std::string name = to_utf8(field.name);
    text += fmt::format("  {}{}  {:<{}}  {}", name, std::string(widest - display_width(name), ' '),
                        type_of(field), widest_type,
                        field.least_bytes == field.most_bytes
                            ? size(field.least_bytes)
                            : fmt::format("{} to {}, mean {}", size(field.least_bytes),
                                          size(field.most_bytes), human_bytes(field.mean_bytes)));
    if (field.samples < facts.looked_at) text += fmt::format(", in {} samples", field.samples);
    text += '\n';
  }
  text +=
      fmt::format("\nsizes of all samples as they are stored: {} to {}, median {}, 99 % up to {}\n",
                  size(facts.least), size(facts.most), size(facts.median), size(facts.p99));
  return text + histogram(facts.by_size);
}

std::string as_json(const data::DataFacts& facts) {
  nlohmann::ordered_json out = {
      {"shards", facts.shards},
      {"formats", facts.formats},
      {"samples", facts.samples},
      {"bytes", facts.object_bytes},
      {"fingerprint", fmt::format("{:016x}", facts.fingerprint)},
      {"index_bytes", facts.index_bytes},
      {"sidecars", {{"wanted", facts.without_index}, {"fresh", facts.indexed}}},
      {"notes", facts.notes},
      {"samples_in_shard", {{"least", facts.fewest_in_shard}, {"most", facts.most_in_shard}}},
      {"sample_bytes",
       {{"all", facts.sample_bytes},
        {"least", facts.least},
        {"median", facts.median},
        {"p99", facts.p99},
        {"most", facts.most}}}};
  out["by_size"] = nlohmann::ordered_json::array();
  for (const auto& [power, samples] : facts.by_size)
    out["by_size"].push_back(
        {{"from_bytes", power < 0 ? 0 : std::int64_t{1} << power}, {"samples", samples}});
  out["looked_at"] = facts.looked_at;
  out["fields"] = nlohmann::ordered_json::array();
  for (const auto& field : facts.fields)
    out["fields"].push_back({{"name", to_utf8(field.name)},
                             {"dtype", data::name(field.dtype)},
                             {"same_dtype", !field.other_dtypes},
                             {"shape", field.shape},
                             {"same_dimensions", !field.other_dimensions},
                             {"samples", field.samples},
                             {"least_bytes", field.least_bytes},
                             {"mean_bytes", field.mean_bytes},
                             {"most_bytes", field.most_bytes}});
  return out.dump(1) + "\n";
}

int stat(const Options& options) {
  Attended attended;
  return attended.run([&] {
    const auto facts = data::describe(shard_urls(options.shards), {.format = options.shards.format},
                                      options.looks, attended.watch());
    attended.hide_line();
    for (const std::string& note : facts.notes) say(note);
    print(options.json ? as_json(facts) : as_text(facts));
    return kExitFine;
  });
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_shards_options(app, options->shards);
  app.add_option("--looks", options->looks,
                 "samples that are read to tell their fields, evenly spread; 1000 if not given")
      ->type_name("N")
      ->check(whole_number_from(1));
  app.add_flag("--json", options->json, "all of it as JSON");
  return [options] { return stat(*options); };
}

}  // namespace

extern const Command kDataStat = {
    .name = "data stat",
    .summary = "how many samples there are, how large, and what they are made of",
    .examples =
        "bedplate data stat packed\n"
        "bedplate data stat packed tars --json",
    .declare = declare,
};

}  // namespace bedplate::cli
