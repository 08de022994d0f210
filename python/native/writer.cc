#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/packed_writer.h"
#include "native.h"
#include "store/driver.h"

namespace bedplate::python {
namespace {

using data::PackedWriter;

class PyPackedWriter {
 public:
  PyPackedWriter(const std::string& url, const std::string& schema, const std::string& if_exists)
      : url_(url), owner_(::getpid()) {
    const nb::gil_scoped_release released;
    const auto place = store::locate(url);
    store_ = place.store;
    writer_ = std::make_unique<PackedWriter>(
        place.store->create(
            place.key,
            if_exists == "replace" ? store::IfExists::kReplace : store::IfExists::kRefuse,
            store::kDefaultTimeout),
        data::Schema::from_json(schema));
  }

  void add(const nb::list& values) {
    std::vector<std::unique_ptr<Bytes>> held;
    std::vector<std::span<const std::byte>> spans;
    for (const nb::handle value : values) {
      held.push_back(std::make_unique<Bytes>(value));
      spans.push_back(held.back()->get());
    }
    writer().add(spans);
  }

  std::int64_t finish() {
    const nb::gil_scoped_release released;
    const std::int64_t size = writer().finish().size;
    writer_.reset();
    return size;
  }
  void abandon() { writer_.reset(); }
  std::int64_t records() { return writer().records(); }

 private:
  PackedWriter& writer() {
    if (owner_ != ::getpid()) {
      throw Error(Code::kInvalid,
                  "the shard {} is written by process {}, of which this one is a child: only that "
                  "one can go on with it",
                  to_utf8(url_), owner_);
    }
    if (!writer_) throw Error(Code::kInvalid, "the shard is finished, or was given up");
    return *writer_;
  }

  const std::string url_;
  const pid_t owner_;                    // after fork() the shard stays the parent's
  std::shared_ptr<store::Store> store_;  // shared with whoever else uses it; outlives the writer
  std::unique_ptr<PackedWriter> writer_;
};

}  // namespace

void bind_writer(nb::module_& module) {
  nb::class_<PyPackedWriter>(module, "PackedWriter")
      .def(nb::init<const std::string&, const std::string&, const std::string&>())
      .def("add", &PyPackedWriter::add)
      .def("finish", &PyPackedWriter::finish)
      .def("abandon", &PyPackedWriter::abandon)
      .def("records", &PyPackedWriter::records);
}

}  // namespace bedplate::python
