// bedplate data cat: samples as JSON lines, or the bytes of a field.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "data/json_values.h"
#include "data/look.h"

namespace bedplate::cli {
namespace {

struct Options {
  ShardsOptions shards;
  std::optional<std::int64_t> sample;
  std::string range;
  std::string field;
  bool raw = false;
};

constexpr std::size_t kAtOnce = 64 * 1024;  // of what is printed

struct Range {
  std::int64_t first;
  std::int64_t last;
};

// "10:20", "10:", ":20"; the last one is not in it.
Range range_of(const Options& options, std::int64_t samples) {
  if (options.sample && !options.range.empty())
    throw Error(Code::kInvalid, "give --sample or --range, not both");
  if (options.sample) {
    if (*options.sample < 0 || *options.sample >= samples)
      throw Error(Code::kInvalid, "there is no sample {}; there are {}, from 0 on", *options.sample,
                  samples);
    return {*options.sample, *options.sample + 1};
  }
  if (options.range.empty()) return {0, samples};
  const auto parts = split(options.range, ':');
  const auto number = [](std::string_view text, std::int64_t otherwise) {
    return text.empty() ? std::optional(otherwise) : to_int(text);
  };
  if (parts.size() == 2) {
    const auto first = number(parts[0], 0);
    const auto last = number(parts[1], samples);
    if (first && last && *first >= 0 && *first <= *last) {
      if (*last <= samples) return {*first, *last};
      throw Error(Code::kInvalid,
                  "--range {}: there are {} samples, from 0 on; {}: goes to their end",
                  to_utf8(options.range), samples, std::min(*first, samples));
    }
  }
  throw Error(Code::kInvalid,
              "--range {} is no range: it is written A:B, from sample A on up to but without B",
              to_utf8(options.range));
}

const data::Field& field_of(const data::Sample& sample, std::int64_t number,
                            const std::string& name) {
  const auto is_content = [](const data::Field& field) { return field.name != data::kKeyColumn; };
  if (name.empty() && std::ranges::count_if(sample.fields, is_content) == 1)
    return *std::ranges::find_if(sample.fields, is_content);
  const auto found = std::ranges::find(sample.fields, name, &data::Field::name);
  if (found != sample.fields.end()) return *found;
  std::vector<std::string> names;
  for (const data::Field& field : sample.fields) names.push_back(to_utf8(field.name));
  throw Error(Code::kInvalid, "sample {} has {}{}: {}", number,
              name.empty() ? "several fields, --field chooses one" : "no field ", to_utf8(name),
              fmt::join(names, ", "));
}

int cat(const Options& options) {
  Attended attended;
  return attended.run([&] {
    const auto dataset =
        data::Dataset::open(shard_urls(options.shards), {.format = options.shards.format});
    const Range range = range_of(options, dataset->samples());
    std::string out;
    const auto flush = [&] {
      attended.hide_line();
      if (!out.empty()) print(out);
      out.clear();
    };
    data::for_each_sample(
        *dataset, range.first, range.last,
        [&](std::int64_t number, const data::Sample& sample) {
          if (options.raw) {
            const auto bytes = field_of(sample, number, options.field).bytes;
            out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          } else if (options.field.empty()) {
            data::append_json(sample, out);
            out += '\n';
          } else {
            data::Sample one;
            one.key = sample.key;
            one.fields.push_back(field_of(sample, number, options.field));
            data::append_json(one, out);
            out += '\n';
          }
          if (out.size() >= kAtOnce) flush();
        },
        attended.watch());
    flush();
    return kExitFine;
  });
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_shards_options(app, options->shards);
  app.add_option("--sample", options->sample, "this one only, counted from 0 through all shards")
      ->type_name("N");
  app.add_option("--range", options->range, "these only: from A on, up to but without B")
      ->type_name("A:B");
  app.add_option("--field", options->field, "this field only")->type_name("NAME");
  app.add_flag("--raw", options->raw,
               "the bytes of the field as they are, one sample after the other");
  return [options] { return cat(*options); };
}

}  // namespace

extern const Command kDataCat = {
    .name = "data cat",
    .summary = "write samples as JSON lines, or the bytes of one of their fields",
    .examples =
        "bedplate data cat packed --range 0:3\n"
        "bedplate data cat tars/000000.tar --sample 1 --field cls\n"
        "bedplate data cat packed --sample 0 --field jpg --raw > picture.jpg",
    .declare = declare,
};

}  // namespace bedplate::cli
