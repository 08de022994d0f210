// Copies out of a mapped file, whose pages may be gone when they are touched: the file was cut
// short, or its device failed. Touching them raises SIGBUS, which ends a process that does not
// expect it; here it is an answer.
//
//   if (can_copy_mapped() && copy_mapped(into, mapping + offset, bytes)) …
//
// The first question installs a handler for SIGBUS that passes on to the one before it whatever is
// no copy of ours. Thread-safe.
#pragma once

#include <cstddef>

namespace bedplate::os {

// Whether this thread may copy: false when another handler has taken the place of ours since, or
// when the thread blocks SIGBUS, with which the kernel would kill it. Ask before each batch of
// copies: one or two system calls.
bool can_copy_mapped();

// False when a part of the source could not be read; `into` is then undefined.
bool copy_mapped(void* into, const void* from, std::size_t bytes);

}  // namespace bedplate::os
