// Is this node fit for training? Checks of a machine without a job.
//
//   const os::HostRoot root;
//   const auto report = check_node(host::describe(root), &root);
//   fmt::print("{}", render_node_text(report));       // ends with "fit for training: …"
//
// A check judges settings and states, not a job's time: it has no gain ceiling, and says which
// cause of the catalogue it may lead to. It never writes: fixes are printed with the way back. What
// cannot be seen is said with its reason and is not an "ok"; what does not exist here (no GPU) is
// "n/a". A fault makes a node unfit, a warning is a remark.
//
// A check is one function and one entry in a table of node_checks_*.cc. Pure but for the prefetcher
// check, which reads model specific registers through `root`; with no root (a recorded Host alone)
// that check says that it could not see. Thread-safe.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/finding.h"
#include "doctor/judge.h"
#include "doctor/render_text.h"
#include "doctor/rule.h"
#include "host/draw.h"
#include "host/host.h"
#include "os/host_root.h"

namespace bedplate::doctor {

enum class CheckState : std::uint8_t {
  kOk,
  kNote,           // worth knowing; may well be meant
  kWarning,        // costs speed or will fail some jobs
  kFault,          // jobs will fail or crawl
  kNotSeen,        // could not look: `text` says why
  kNotApplicable,  // there is nothing to look at: `text` says what is missing
};
std::string_view name(CheckState state);  // "ok", "note", "warning", "fault", "not seen", "n/a"

struct CheckResult {
  CheckState state = CheckState::kOk;
  Status status =
      Status::kEstablished;  // hypothesis: a look-alike is at least as likely, and `text` names it
  std::string text;          // what was seen, one line
  std::vector<Evidence> evidence;
  std::string verify;  // for this machine; empty: the check's own
  std::string fix;
  std::string undo;
  std::vector<host::Mark> marks;  // for the drawing
};

// What a check looks at.
class NodeView {
 public:
  NodeView(const host::Host& host, const os::HostRoot* root, const Thresholds& overrides)
      : host_(host), root_(root), overrides_(overrides) {}

  const host::Host& host() const { return host_; }
  const os::HostRoot* root() const { return root_; }  // null: only the Host is known
  double threshold(std::string_view key) const;       // the override, else the table's value

 private:
  const host::Host& host_;
  const os::HostRoot* root_;
  const Thresholds& overrides_;
};

struct NodeCheck {
  std::string_view id;     // "shm_size"
  std::string_view title;  // what is wrong when it fires: "/dev/shm is too small for data workers"
  Layer layer;
  CheckResult (*check)(const NodeView&);
  std::string_view verify;  // the general form
  std::string_view fix;
  std::string_view undo;
  std::string_view source;  // where its bounds come from
  std::span<const Threshold> thresholds = {};
  std::string_view may_cause = {};  // a rule of the catalogue, "" for none
};

// All checks, in the order in which they are printed.
std::vector<const NodeCheck*> all_node_checks();

enum class Fitness : std::uint8_t { kYes, kWithRemarks, kNo };
std::string_view name(Fitness fitness);  // "yes", "with remarks", "no"

struct NodeReport {
  struct Entry {
    const NodeCheck* check;
    CheckResult result;
  };
  std::string version;         // of Bedplate
  std::string machine;         // "dgx-h100: 2 × Intel Xeon …, 8 GPUs, …"
  std::vector<Entry> entries;  // in the order of all_node_checks()
  Fitness fitness = Fitness::kYes;

  std::size_t count(CheckState state) const;
};

NodeReport check_node(const host::Host& host, const os::HostRoot* root,
                      const Thresholds& overrides = {});

// What the checks would have drawn at their devices.
std::vector<host::Mark> marks_of(const NodeReport& report);

// "key=value" texts as overrides. Throws Error{kInvalid} for another form and for an unknown key,
// with its nearest neighbour.
Thresholds node_thresholds(std::span<const std::string> texts);

std::string render_node_text(const NodeReport& report, const TextOptions& options = {});

// One object with the names of the run's report where they fit: "findings" (faults, warnings,
// notes, in that order), "not_fired", "not_seen", "verdict"; beside them "not_applicable".
// "gain_ceiling" is null: no job was measured. Ends with a line end.
std::string render_node_json(const NodeReport& report);

}  // namespace bedplate::doctor
