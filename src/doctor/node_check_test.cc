// Every check of a node: fired and not fired, on a healthy machine in which one thing is changed.
#include "doctor/node_check.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "doctor/golden_text.h"
#include "doctor/layout.h"
#include "doctor/node_check_cases.h"
#include "os/test_folder.h"

namespace bedplate::doctor {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const fs::path kTrees = fs::path(BEDPLATE_SOURCE_DIR) / "tests/hosts";
const fs::path kGolden = fs::path(BEDPLATE_SOURCE_DIR) / "tests/golden/hosts";

const CheckResult& result_of(const NodeReport& report, std::string_view id) {
  for (const auto& entry : report.entries) {
    if (entry.check->id == id) return entry.result;
  }
  ADD_FAILURE() << "no check " << id;
  return report.entries.at(0).result;
}

TEST(NodeCheck, EachFiresWhenItShouldAndOnlyThen) {
  for (const auto& test : all_cases()) {
    host::Host host = healthy();
    test.make(host);
    const auto report = check_node(host, nullptr);
    const auto& result = result_of(report, test.id);
    EXPECT_EQ(name(result.state), name(test.state))
        << test.id << ", " << test.change << ": " << result.text;
    std::string said = result.text;
    for (const auto& evidence : result.evidence) said += "\n" + evidence.text;
    EXPECT_THAT(said, HasSubstr(test.says)) << test.id << ", " << test.change;
    if (test.state <= CheckState::kFault && test.state != CheckState::kOk) {
      EXPECT_THAT(result.evidence, Not(IsEmpty())) << test.id << ", " << test.change;
    }
  }
}

TEST(NodeCheck, EveryCheckHasACaseThatFiresAndOneThatDoesNot) {
  std::set<std::string> fires, passes;
  for (const auto& test : all_cases()) {
    (test.state == CheckState::kNote || test.state == CheckState::kWarning ||
             test.state == CheckState::kFault
         ? fires
         : passes)
        .insert(test.id);
  }
  fires.insert("prefetchers");  // Prefetchers.* below
  std::set<std::string> ids;
  for (const auto* check : all_node_checks()) {
    const std::string id(check->id);
    EXPECT_TRUE(ids.insert(id).second) << id << " is there twice";
    EXPECT_TRUE(fires.contains(id)) << id;
    EXPECT_TRUE(passes.contains(id)) << id;
    EXPECT_FALSE(check->title.empty() || check->verify.empty() || check->fix.empty() ||
                 check->undo.empty() || check->source.empty())
        << id;
  }
}

TEST(NodeCheck, AHealthyMachineIsFit) {
  const auto report = check_node(healthy(), nullptr);
  EXPECT_EQ(report.fitness, Fitness::kYes);
  EXPECT_EQ(report.count(CheckState::kFault) + report.count(CheckState::kWarning) +
                report.count(CheckState::kNote),
            0u);
  EXPECT_THAT(marks_of(report), IsEmpty());
}

TEST(NodeCheck, AMachineThatTellsNothingIsNotCalledOk) {
  const auto report = check_node(host::Host{}, nullptr);
  EXPECT_EQ(report.count(CheckState::kOk), 0u);
  EXPECT_THAT(render_node_text(report), HasSubstr("could not be seen"));
}

TEST(NodeCheck, MarksStandAtTheirDevices) {
  host::Host host = healthy();
  host.gpus[1].pci.link.width = 4;
  host.rdma[1].ports[0].state = "DOWN";
  const auto marks = marks_of(check_node(host, nullptr));
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].subject, "rdma/mlx5_3");
  EXPECT_EQ(marks[1].subject, "gpu/0");
  EXPECT_EQ(marks[1].level, host::MarkLevel::kFault);
}

TEST(NodeCheck, ALinkThatMayBeIdleIsAHypothesisUntilLanesAreMissing) {
  host::Host host = healthy();
  host.gpus[1].pci.link.speed_gts = 2.5;
  EXPECT_EQ(result_of(check_node(host, nullptr), "gpu_pcie").status, Status::kHypothesis);
  host.gpus[2].pci.link.width = 8;
  EXPECT_EQ(result_of(check_node(host, nullptr), "gpu_pcie").status, Status::kEstablished);
}

TEST(NodeCheck, ThresholdsMayBeOverridden) {
  host::Host host = healthy();
  host.limits.open_files = host::Limit{.soft = 1024, .hard = 1024};
  const std::string given[] = {"open_files.warning=512"};
  EXPECT_EQ(result_of(check_node(host, nullptr, node_thresholds(given)), "open_files").state,
            CheckState::kOk);
  const auto message = [](const std::string& text) -> std::string {
    try {
      node_thresholds({&text, 1});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("open_files.warnin=1"), HasSubstr("did you mean open_files.warning?"));
  EXPECT_THAT(message("open_files.warning"), HasSubstr("key=number"));
  EXPECT_THAT(message("open_files.warning=x"), HasSubstr("key=number"));
}

// ---- registers: read from a recorded tools/rdmsr.txt ----

class Prefetchers : public ::testing::Test {
 protected:
  const CheckResult& check(const std::string& registers, const std::string& vendor) {
    fs::create_directories(folder_.path() / "tools");
    std::ofstream(folder_.path() / "tools/rdmsr.txt") << registers;
    host::Host host = healthy();
    host.cpu.vendor = vendor;
    const os::HostRoot root(folder_.path());
    report_ = check_node(host, &root);
    return result_of(report_, "prefetchers");
  }

  os::TestFolder folder_;
  NodeReport report_;
};

TEST_F(Prefetchers, AbsentRegistersAreNotApplicable) {
  EXPECT_EQ(check("", "AuthenticAMD").state, CheckState::kNotApplicable);
  EXPECT_EQ(check("0x1a4 0x0\n", "ARM").state, CheckState::kNotApplicable);
}

TEST_F(Prefetchers, DefaultsAreFine) {
  EXPECT_EQ(check("0x1a4 0x0\n", "GenuineIntel").state, CheckState::kOk);
  EXPECT_EQ(check("0xc0000108 0x0\n0xc0011020 0x6404000000000\n", "AuthenticAMD").state,
            CheckState::kOk);
}

TEST_F(Prefetchers, AnIntelPrefetcherThatIsOffIsUnusual) {
  const auto& result = check("0x1a4 0x5\n", "GenuineIntel");
  EXPECT_EQ(result.state, CheckState::kNote);
  EXPECT_THAT(result.evidence.at(0).text, HasSubstr("L2 streamer, L1 (DCU)"));
}

TEST_F(Prefetchers, TheDocumentedAmdRegisterIsTold) {
  EXPECT_THAT(check("0xc0000108 0x8\n", "AuthenticAMD").evidence.at(0).text,
              HasSubstr("L2 stream"));
}

TEST_F(Prefetchers, TheRecipeThatClearsLsCfgIsExplainedAndNeverRepeated) {
  const auto& result = check("0xc0011020 0x0\n", "AuthenticAMD");
  EXPECT_EQ(result.state, CheckState::kWarning);
  EXPECT_THAT(result.evidence.at(0).text, HasSubstr("not a prefetch switch"));
  for (const auto& text : {render_node_text(report_), render_node_json(report_)})
    EXPECT_THAT(text, Not(HasSubstr("wrmsr")));
}

TEST_F(Prefetchers, AVirtualMachinesRegistersAreItsHosts) {
  host::Host host = healthy();
  host.system.hypervisor = "KVM";
  const os::HostRoot root(folder_.path());
  EXPECT_EQ(result_of(check_node(host, &root), "prefetchers").state, CheckState::kNotApplicable);
}

// ---- reports ----

class NodeReports : public ::testing::TestWithParam<const char*> {};

TEST_P(NodeReports, AreAsTheirGoldenFilesSay) {
  const os::HostRoot root(kTrees / GetParam());
  auto report = check_node(host::describe(root), &root);
  report.version = "golden";
  expect_golden(render_node_text(report), kGolden / (std::string(GetParam()) + ".doctor.txt"));
  expect_golden(render_node_json(report), kGolden / (std::string(GetParam()) + ".doctor.json"));
}

TEST_P(NodeReports, KeepTheirWidth) {
  const os::HostRoot root(kTrees / GetParam());
  const auto report = check_node(host::describe(root), &root);
  for (const std::size_t width : {60u, 100u}) {
    const std::string text = render_node_text(report, {.columns = width});
    for (const auto line : split(text, '\n')) EXPECT_LE(columns(line), width) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(Trees, NodeReports,
                         ::testing::Values("broken", "container", "dgx-h100", "epyc-nps4", "roce",
                                           "vm-2cpu"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(NodeReport, JsonHasTheNamesOfTheRunsReport) {
  const os::HostRoot root(kTrees / "container");
  const auto json =
      nlohmann::json::parse(render_node_json(check_node(host::describe(root), &root)));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["verdict"]["rule"], "shm_size");
  EXPECT_EQ(json["verdict"]["status"], "established");
  EXPECT_EQ(json["verdict"]["fit"], "no");
  EXPECT_EQ(json["findings"][0]["state"], "fault");
  EXPECT_TRUE(json["findings"][0]["gain_ceiling"].is_null());
  for (const auto* key :
       {"rule", "status", "role", "because_of", "scope", "evidence", "verify", "fix", "undo"}) {
    EXPECT_TRUE(json["findings"][0].contains(key)) << key;
  }
  EXPECT_TRUE(json["not_fired"].is_array());
  for (const auto& item : json["not_seen"]) EXPECT_TRUE(item["missing"].is_array());
  std::size_t all = json["findings"].size() + json["not_fired"].size() + json["not_seen"].size() +
                    json["not_applicable"].size();
  EXPECT_EQ(all, all_node_checks().size());
}

TEST(NodeReport, ThisMachineNow) {
  const os::HostRoot live;
  const auto report = check_node(host::describe(live), &live);
  EXPECT_EQ(report.entries.size(), all_node_checks().size());
  EXPECT_THAT(render_node_text(report), HasSubstr("fit for training: "));
}

}  // namespace
}  // namespace bedplate::doctor
