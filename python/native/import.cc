// Rows that Python reads become packed shards: bedplate.data.parquet.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "data/import_rows.h"
#include "native.h"

namespace bedplate::python {
namespace {

using data::PackReport;

std::string_view word_of(PackReport::End end) {
  switch (end) {
    case PackReport::End::kDone:
      return "done";
    case PackReport::End::kNothingToDo:
      return "nothing to do";
    default:
      return "planned";
  }
}

nb::dict to_python(const PackReport& report) {
  nb::dict out;
  const auto texts = [](const std::vector<std::string>& from) {
    nb::list list;
    for (const std::string& one : from) list.append(one);
    return list;
  };
  out["end"] = nb::str(word_of(report.end).data());
  out["from"] = report.kind;
  out["source_files"] = report.source_objects;
  out["source_bytes"] = report.source_bytes;
  out["samples"] = report.samples;
  out["shards"] = report.shards;
  out["shards_made"] = report.shards_made;
  out["bytes"] = report.bytes;
  out["schema"] = report.schema;
  out["notes"] = texts(report.notes);
  out["abandoned"] = report.abandoned;
  return out;
}

class PyRowImport {
 public:
  PyRowImport(const std::vector<std::string>& urls, const std::string& destination,
              const std::vector<std::pair<std::string, std::string>>& how, std::int64_t shard_bytes,
              std::int64_t shard_samples, const std::string& existing) {
    const nb::gil_scoped_release released;
    data::RowImportOptions options{.shard_bytes = shard_bytes, .shard_samples = shard_samples};
    for (const auto& [name, value] : how) options.how.push_back({name, value});
    if (existing == "overwrite") options.existing = data::ExistingPack::kOverwrite;
    import_ =
        std::make_unique<data::RowImport>(urls, destination, std::move(options), data::Watch{});
  }

  // (where it is, its name for messages, bytes) of each file of the source.
  nb::list files() {
    nb::list out;
    for (const data::SourceObject& one : import().source().objects) {
      const std::string place = one.store->url() + "/" + one.object.key;
      out.append(nb::make_tuple(nb::bytes(place.data(), place.size()),
                                nb::bytes(one.name.data(), one.name.size()), one.object.size));
    }
    return out;
  }
  bool nothing_to_do() { return import().nothing_to_do(); }
  nb::dict report() { return to_python(import().report()); }

  void begin(const std::string& schema) {
    const nb::gil_scoped_release released;
    import().begin(data::Schema::from_json(schema));
  }
  std::int64_t rows_to_skip() { return import().rows_to_skip(); }
  void skip(std::int64_t rows) { import().skip(rows); }

  // A column is (bytes, None) or (bytes, int64 offsets), each any object with a buffer.
  void add(std::int64_t rows, const nb::list& columns) {
    std::vector<std::unique_ptr<Bytes>> held;
    const auto hold = [&](nb::handle object) {
      held.push_back(std::make_unique<Bytes>(object));
      return held.back()->get();
    };
    std::vector<data::RowColumn> given;
    for (const nb::handle column : columns) {
      const auto pair = nb::cast<nb::tuple>(column);
      data::RowColumn& one = given.emplace_back();
      one.bytes = hold(pair[0]);
      if (pair[1].is_none()) continue;
      const auto offsets = hold(pair[1]);
      const auto at = reinterpret_cast<std::uintptr_t>(offsets.data());
      if (at % alignof(std::int64_t) != 0 || offsets.size() % sizeof(std::int64_t) != 0)
        throw Error(Code::kInvalid, "offsets are int64, aligned");
      one.offsets = {reinterpret_cast<const std::int64_t*>(offsets.data()),
                     offsets.size() / sizeof(std::int64_t)};
    }
    const nb::gil_scoped_release released;
    import().add(rows, given);
  }

  nb::dict finish() {
    PackReport report;
    {
      const nb::gil_scoped_release released;
      report = import().finish();
    }
    return to_python(report);
  }
  // What is half written is gone; what is whole stays, and the same import goes on with it.
  void close() {
    const nb::gil_scoped_release released;
    import_.reset();
  }

 private:
  data::RowImport& import() {
    if (!import_) throw Error(Code::kInvalid, "the import is closed");
    return *import_;
  }

  std::unique_ptr<data::RowImport> import_;
};

}  // namespace

void bind_import(nb::module_& module) {
  nb::class_<PyRowImport>(module, "RowImport")
      .def(nb::init<const std::vector<std::string>&, const std::string&,
                    const std::vector<std::pair<std::string, std::string>>&, std::int64_t,
                    std::int64_t, const std::string&>())
      .def("files", &PyRowImport::files)
      .def("nothing_to_do", &PyRowImport::nothing_to_do)
      .def("report", &PyRowImport::report)
      .def("begin", &PyRowImport::begin)
      .def("rows_to_skip", &PyRowImport::rows_to_skip)
      .def("skip", &PyRowImport::skip)
      .def("add", &PyRowImport::add)
      .def("finish", &PyRowImport::finish)
      .def("close", &PyRowImport::close);
  // What the command line takes and says.
  module.def("parse_schema",
             [](const std::string& text) { return data::parse_schema(text).to_json(); });
  module.def("parse_size", [](const std::string& text) {
    const auto size = parse_size(text);
    if (!size) throw Error(Code::kInvalid, "'{}' is no size; it is written as in 64MiB", text);
    return *size;
  });
  module.def("human_bytes", [](double bytes) { return human_bytes(bytes); });
}

}  // namespace bedplate::python
