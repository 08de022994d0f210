// What is fuzzed: functions that are given any bytes as one of the things that Bedplate reads.
//
//   for (const Target* target : all_targets()) target->run(bytes);
//
// A target ends well when it returns: what is no shard is an Error, which it swallows. Anything
// else (another exception, a promise of an index that is broken, an access out of bounds under a
// sanitizer, a run without end) is a finding.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bedplate::fuzz {

struct Target {
  std::string_view name;
  void (*run)(std::span<const std::byte> bytes);
  // What it is to begin with: whole and valid. The committed corpus is made of these.
  std::vector<std::string> (*seeds)();
};
std::span<const Target> all_targets();
// Of them, those of the picture decoders; none in a build without these.
std::span<const Target> picture_targets();
// Aborts when there is none of this name.
const Target& target_of_name(std::string_view name);

}  // namespace bedplate::fuzz
