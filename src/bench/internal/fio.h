// fio as the engine: how it is asked, and what its JSON says (fio's HOWTO, "JSON output").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/internal/disk_phase.h"

namespace bedplate::bench {

// "fio-3.33"; nullopt when it is not installed. Throws Error when it is, and does not answer.
std::optional<std::string> fio_version(const Watch& watch);

// "io_uring", or "libaio" where that is closed to this process.
std::string_view fio_io_engine();

// The command line for one phase over the file /proc/PROCESS/fd/FD.
std::vector<std::string> fio_command(const DiskJob& job, const DiskPhaseKind& kind);

// What fio printed; `said` is its standard error. Error{kIo | kNoSpace | …} when its job failed,
// kCorrupt when this is not fio's JSON.
Figures parse_fio(std::string_view printed, std::string_view said, DiskPhaseKind::Way way);

Figures run_by_fio(const DiskJob& job, const DiskPhaseKind& kind);

}  // namespace bedplate::bench
