// What the tests of rules share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "doctor/judge.h"
#include "doctor/run_builder.h"
#include "doctor/run_view.h"

namespace bedplate::doctor {

using probe::Phase;

inline const Finding* finding(const Report& report, std::string_view rule) {
  for (const Finding& f : report.findings) {
    if (f.rule == rule) return &f;
  }
  return nullptr;
}

inline std::vector<std::string> found(const Report& report) {
  std::vector<std::string> out;
  for (const Finding& f : report.findings) out.push_back(f.rule);
  return out;
}

// Names of rules that did not fire although they could see.
inline bool quiet(const Report& report, std::string_view rule) {
  return std::find(report.not_fired.begin(), report.not_fired.end(), rule) !=
         report.not_fired.end();
}

inline bool unseen(const Report& report, std::string_view rule) {
  for (const NotSeen& n : report.not_seen) {
    if (n.rule == rule) return !n.missing.empty();
  }
  return false;
}

inline std::string evidence(const Finding& f) {
  std::string out;
  for (const Evidence& e : f.evidence) out += e.source + ": " + e.text + "\n";
  return out;
}

inline std::string ruled_out(const Finding& f, std::string_view rule) {
  for (const RuledOut& r : f.ruled_out) {
    if (r.rule == rule) return r.text;
  }
  return {};
}

}  // namespace bedplate::doctor
