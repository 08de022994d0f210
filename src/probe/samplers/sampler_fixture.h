// What the samplers' tests share: a hand-made machine in a folder, and a sink that remembers what
// was written last.
//
//   class HostCpuTest : public SamplerTest {};
//   TEST_F(HostCpuTest, …) {
//     put("/proc/stat", "cpu  1 2 3 …");
//     auto sampler = open(kHostCpu);
//     tick(*sampler);
//     EXPECT_EQ(value("host", "cpu.user_ns"), 10'000'000);
#pragma once

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "os/test_folder.h"
#include "probe/sampler.h"

namespace bedplate::probe {

class RememberingSink final : public SampleSink {
 public:
  struct Value {
    std::int64_t value;
    SeriesKind kind;
    std::string source;
  };

  Nanos now() const override { return now_ns; }
  void counter(std::string_view subject, std::string_view metric, std::int64_t value,
               std::string_view source) override {
    const auto key = std::pair(std::string(subject), std::string(metric));
    const auto before = values.find(key);
    // The one law of all counters, checked wherever a test writes one.
    if (before != values.end()) {
      EXPECT_GE(value, before->second.value) << subject << " " << metric << " went backward";
    }
    EXPECT_GE(value, 0) << subject << " " << metric;
    values[key] = {value, SeriesKind::kCounter, std::string(source)};
  }
  void gauge(std::string_view subject, std::string_view metric, std::int64_t value,
             std::string_view source) override {
    values[{std::string(subject), std::string(metric)}] = {value, SeriesKind::kGauge,
                                                           std::string(source)};
  }
  void note(int pid, std::string_view key, std::string_view value) override {
    notes.push_back({pid, now_ns, std::string(key), std::string(value)});
  }

  Nanos now_ns = 0;
  std::map<std::pair<std::string, std::string>, Value> values;
  std::vector<Note> notes;
};

class SamplerTest : public ::testing::Test {
 protected:
  // Writes a file of the hand-made machine; a file that a sampler holds open is written in place.
  void put(const std::string& path, std::string_view text) {
    const std::filesystem::path full = folder_.path() / path.substr(1);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full, std::ios::binary) << text;
  }
  void drop(const std::string& path) {
    std::filesystem::remove_all(folder_.path() / path.substr(1));
  }

  std::unique_ptr<Sampler> open(const SamplerPart& part, int root_pid = 0) {
    cgroups_ = std::make_unique<os::CgroupTree>(host_);
    const SampleContext context{.host = host_, .cgroups = *cgroups_, .root_pid = root_pid};
    return part.open(context);
  }

  // The reason for which a sampler refuses to open on this machine, as "code: text".
  std::string refusal(const SamplerPart& part, int root_pid = 0) {
    try {
      open(part, root_pid);
      return "opened";
    } catch (const Error& error) {
      return std::string(name(error.code())) + ": " + error.what();
    }
  }

  void tick(Sampler& sampler) {
    sink_.now_ns += kSecond / 2;
    sampler.sample(processes_, sink_);
    for (JobProcess& process : processes_) process.appeared = false;
  }

  void process(int pid) {
    processes_.push_back({.pid = pid, .start = sink_.now_ns, .appeared = true});
  }

  std::optional<std::int64_t> value(const std::string& subject, const std::string& metric) const {
    const auto it = sink_.values.find({subject, metric});
    return it == sink_.values.end() ? std::nullopt : std::optional(it->second.value);
  }
  SeriesKind kind(const std::string& subject, const std::string& metric) const {
    return sink_.values.at({subject, metric}).kind;
  }
  std::vector<std::string> notes(std::string_view key) const {
    std::vector<std::string> found;
    for (const Note& note : sink_.notes) {
      if (note.key == key) found.push_back(std::to_string(note.pid) + " " + note.value);
    }
    return found;
  }

  os::TestFolder folder_;
  os::HostRoot host_{folder_.path()};
  std::unique_ptr<os::CgroupTree> cgroups_;
  std::vector<JobProcess> processes_;
  RememberingSink sink_;
};

}  // namespace bedplate::probe
