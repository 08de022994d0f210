// A measurement and its judgement, for people and for scripts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/disk.h"
#include "bench/meta.h"
#include "bench/need.h"

namespace bedplate::bench {

// What the job needs and what each measurement says of that; without a need: nothing.
struct Verdict {
  std::optional<Need> need;
  std::vector<Judgement> judgements;

  bool fits() const;
};

std::string render_text(const DiskResult& disk, const Verdict& verdict);
std::string render_text(const MetaResult& meta, const Verdict& verdict);
// docs/bench.md describes the fields.
std::string render_json(const DiskResult& disk, const Verdict& verdict);
std::string render_json(const MetaResult& meta, const Verdict& verdict);

}  // namespace bedplate::bench
