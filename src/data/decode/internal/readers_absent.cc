// In place of jpeg_reader.cc and png_reader.cc in a build without the libraries.
#include "base/error.h"
#include "data/decode/internal/row_reader.h"

namespace bedplate::data {

std::unique_ptr<RowReader> make_jpeg_reader() {
  throw Error(Code::kUnsupported,
              "this build decodes no pictures: install libjpeg-dev and libpng-dev and build "
              "with BEDPLATE_WITH_DECODE=ON");
}

std::unique_ptr<RowReader> make_png_reader() { return make_jpeg_reader(); }

}  // namespace bedplate::data
