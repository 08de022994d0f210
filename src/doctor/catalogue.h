// The rules as documentation: what `bedplate rules` prints and what docs/doctor.md holds.
#pragma once

#include <string>
#include <string_view>

namespace bedplate::doctor {

// Every rule with its signals, look-alikes, thresholds, verify and fix, then an index from symptom
// to rules: the part of docs/doctor.md between its markers, which a test compares.
std::string catalogue_markdown();

// The same as one JSON object: {"rules": [{"id", "title", "layer", …}], "verdict": {thresholds}}.
std::string catalogue_json();

// One line a rule; with an id everything about that one. Throws Error{kNotFound} with the nearest
// name for an id that is none.
std::string catalogue_text(std::string_view id = {});

}  // namespace bedplate::doctor
