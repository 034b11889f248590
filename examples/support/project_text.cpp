#include "support/project_text.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace examples {
namespace {

constexpr std::array<std::string_view, 5> suffixes{".md", ".hpp", ".cpp", ".cu", ".def"};

void collect(const std::filesystem::path& folder, std::vector<std::filesystem::path>& files) {
  std::error_code missing;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, missing)) {
    const bool wanted =
        std::ranges::find(suffixes, entry.path().extension().string()) != suffixes.end();
    if (entry.is_regular_file() && entry.file_size() > 0 && wanted) files.push_back(entry.path());
  }
}

}  // namespace

std::vector<std::filesystem::path> project_text() {
  const std::filesystem::path root = LOCKSTEP_EXAMPLES_SOURCE_DIR;
  std::vector<std::filesystem::path> files;
  for (const char* folder : {"docs", "include", "src", "kernels", "examples"})
    collect(root / folder, files);
  std::ranges::sort(files);
  LOCKSTEP_CHECK(!files.empty(), InvalidArgument, "no text found below ", root.string(),
                 "; name files with --data");
  return files;
}

}  // namespace examples
