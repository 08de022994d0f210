// A Host as JSON and back: what `bedplate host --json` prints and what a run keeps as "host.json".
//
//   writer.machine("host.json", host::to_json(here));
//   const Host then = host::from_json(run.machine.at("host.json"));
//
// Names are those of the fields in host/host.h, in their order. What is absent is null; lists of
// CPUs are texts as the kernel writes them ("0-3,8"); a limit that does not limit is "unlimited".
// The same Host gives the same bytes.
#pragma once

#include <string>
#include <string_view>

#include "host/host.h"

namespace bedplate::host {

std::string to_json(const Host& host);  // indented by two, no newline at the end

// Fields that the text lacks keep their defaults; names it does not know are passed over: so an
// older or newer minor form is read. Throws Error{kCorrupt} for what is not such JSON,
// Error{kUnsupported} for a newer schema.
Host from_json(std::string_view text);

}  // namespace bedplate::host
