#include "data/pack_record.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "data/json_text.h"

namespace bedplate::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::array<std::string_view, 3> kStates = {"clearing", "packing", "done"};

}  // namespace

std::string to_json(const PackRecord& record) {
  Json options = Json::object();
  for (const auto& [name, value] : record.options) options[name] = value;
  Json out = {{"bedplate_pack", kVersion},
              {"state", kStates[static_cast<std::size_t>(record.state)]},
              {"options", options},
              {"source",
               {{"objects", record.source.objects},
                {"bytes", record.source.bytes},
                {"fingerprint", fmt::format("{:016x}", record.source.fingerprint)}}}};
  if (!record.schema.empty()) out["schema"] = Json::parse(record.schema);
  if (!record.classes.empty()) out["classes"] = record.classes;
  out["planned_samples"] = record.planned;
  if (record.state != PackRecord::State::kDone) {
    out["run"] = record.run;
    out["most_bad"] = record.most_bad;
  }
  if (record.state == PackRecord::State::kDone) {
    Json shards = Json::array();
    for (const PackRecord::Shard& shard : record.shards)
      shards.push_back({{"name", shard.name}, {"samples", shard.samples}, {"bytes", shard.bytes}});
    out["shards"] = std::move(shards);
    out["skipped"] = record.skipped;
  }
  return out.dump(1) + "\n";
}

PackRecord parse_pack_record(std::string_view text) {
  try {
    const Json json = parse_json(text, "it is damaged: it", Code::kCorrupt);
    if (json.at("bedplate_pack").get<int>() != kVersion)
      throw Error(Code::kUnsupported, "it was written by another Bedplate");
    PackRecord out;
    const auto state = std::ranges::find(kStates, json.at("state").get<std::string>());
    if (state == kStates.end()) throw Error(Code::kCorrupt, "its state is not known");
    out.state = static_cast<PackRecord::State>(state - kStates.begin());
    for (const auto& [name, value] : json.at("options").items())
      out.options.push_back({name, value.get<std::string>()});
    const Json& source = json.at("source");
    out.source.objects = source.at("objects").get<std::int64_t>();
    out.source.bytes = source.at("bytes").get<std::int64_t>();
    out.source.fingerprint = std::stoull(source.at("fingerprint").get<std::string>(), nullptr, 16);
    if (json.contains("schema")) out.schema = json["schema"].dump();
    if (json.contains("classes")) out.classes = json["classes"].get<std::vector<std::string>>();
    out.planned = json.at("planned_samples").get<std::vector<std::int64_t>>();
    if (out.state != PackRecord::State::kDone) {
      out.run = json.value("run", "");
      out.most_bad = json.value("most_bad", std::int64_t{1});  // an earlier Bedplate did not say
      return out;
    }
    for (const Json& shard : json.at("shards"))
      out.shards.push_back({shard.at("name").get<std::string>(),
                            shard.at("samples").get<std::int64_t>(),
                            shard.at("bytes").get<std::int64_t>()});
    out.skipped = json.at("skipped").get<std::int64_t>();
    out.most_bad = out.skipped;
    if (out.shards.size() != out.planned.size())
      throw Error(Code::kCorrupt, "its shards are not those that were planned");
    return out;
  } catch (const std::logic_error& error) {  // of std::stoull()
    throw Error(Code::kCorrupt, "it is damaged: {}", to_utf8(error.what()));
  } catch (const Json::exception& error) {
    throw Error(Code::kCorrupt, "it is damaged: {}", to_utf8(error.what()));
  }
}

std::optional<std::string> difference(const PackRecord& before, const PackRecord& now) {
  const auto value_of = [](const PackRecord& record, const std::string& name) -> std::string {
    const auto option = std::ranges::find(record.options, name, &PackRecord::Option::name);
    return option == record.options.end() || option->value.empty() ? "not given" : option->value;
  };
  for (const PackRecord& one : {before, now}) {
    for (const PackRecord::Option& option : one.options) {
      const std::string then = value_of(before, option.name);
      const std::string here = value_of(now, option.name);
      if (then != here)
        return fmt::format("{} was {}, now it is {}", option.name, to_utf8(then), to_utf8(here));
    }
  }
  if (before.source.fingerprint == now.source.fingerprint) return std::nullopt;
  const auto facts = [](const PackRecord::Source& source) {
    return fmt::format("{} files with {} bytes", source.objects, source.bytes);
  };
  if (facts(before.source) == facts(now.source))
    return fmt::format("the source has changed: as many files and bytes ({}), but not the same",
                       facts(now.source));
  return fmt::format("the source has changed: it had {}, now it has {}", facts(before.source),
                     facts(now.source));
}

}  // namespace bedplate::data
