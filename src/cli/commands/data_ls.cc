// bedplate data ls: shards, or their samples.
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
  bool samples = false;
  bool json = false;
};

// On one line, whatever bytes a name has.
std::string one_line(std::string_view text) {
  std::string out = to_utf8(text);
  for (std::size_t at = 0; (at = out.find_first_of("\n\t", at)) != std::string::npos; at += 2)
    out.replace(at, 1, out[at] == '\n' ? "\\n" : "\\t");
  return out;
}

std::string shards_text(const std::vector<data::ShardFacts>& shards) {
  std::string text =
      fmt::format("{:>12} {:>14}  {:<10}  {}\n", "samples", "bytes", "format", "shard");
  std::int64_t samples = 0;
  std::int64_t bytes = 0;
  for (const auto& one : shards) {
    text += fmt::format("{:>12} {:>14}  {:<10}  {}\n", one.samples, one.bytes, one.format,
                        one_line(one.url));
    samples += one.samples;
    bytes += one.bytes;
  }
  return text + fmt::format("{:>12} {:>14}  in {} shard{}\n", samples, bytes, shards.size(),
                            shards.size() == 1 ? "" : "s");
}

std::string sample_line(std::int64_t number, const data::Sample& sample) {
  std::string line = fmt::format("{:>9}  {}", number, one_line(data::key_of(sample)));
  for (const data::Field& field : sample.fields) {
    if (field.name == data::kKeyColumn) continue;
    const bool text = field.dtype == data::Dtype::kBytes || field.dtype == data::Dtype::kUtf8;
    line += fmt::format("  {}:{}", one_line(field.name), data::name(field.dtype));
    if (text || !field.shape.empty()) line += fmt::format("[{}]", fmt::join(field.shape, ", "));
  }
  return line + "\n";
}

std::string sample_json(std::int64_t number, const data::Sample& sample) {
  nlohmann::ordered_json out = {{"sample", number}, {"key", to_utf8(data::key_of(sample))}};
  out["fields"] = nlohmann::ordered_json::array();
  for (const data::Field& field : sample.fields) {
    if (field.name == data::kKeyColumn) continue;
    out["fields"].push_back({{"name", to_utf8(field.name)},
                             {"dtype", data::name(field.dtype)},
                             {"shape", field.shape},
                             {"bytes", field.bytes.size()}});
  }
  return out.dump() + "\n";
}

int list(const Options& options) {
  Attended attended;
  return attended.run([&] {
    const auto urls = shard_urls(options.shards);
    const data::DatasetOptions how{.format = options.shards.format};
    if (options.samples) {
      const auto dataset = data::Dataset::open(urls, how);
      data::for_each_sample(
          *dataset, 0, dataset->samples(),
          [&](std::int64_t number, const data::Sample& sample) {
            attended.hide_line();
            print(options.json ? sample_json(number, sample) : sample_line(number, sample));
          },
          attended.watch());
      return kExitFine;
    }
    const auto shards = data::list_shards(urls, how, attended.watch());
    attended.hide_line();
    if (!options.json) {
      print(shards_text(shards));
      return kExitFine;
    }
    auto out = nlohmann::ordered_json::array();
    for (const auto& one : shards)
      out.push_back({{"shard", one.url},
                     {"format", one.format},
                     {"samples", one.samples},
                     {"bytes", one.bytes}});
    print(out.dump(1) + "\n");
    return kExitFine;
  });
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_shards_options(app, options->shards);
  app.add_flag("--samples", options->samples,
               "the samples instead: number, key, fields with sizes");
  app.add_flag("--json", options->json, "shards as one JSON list; samples as a line of JSON each");
  return [options] { return list(*options); };
}

}  // namespace

extern const Command kDataLs = {
    .name = "data ls",
    .summary = "list shards with their samples, bytes and format, or the samples in them",
    .examples =
        "bedplate data ls packed\n"
        "bedplate data ls tars/000000.tar --samples\n"
        "bedplate data ls packed tars --json",
    .declare = declare,
};

}  // namespace bedplate::cli
