#include "base/symbol_table.hpp"

#include <cstdint>
#include <cstring>
#include <span>

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace simgpu {
namespace {

/// A file of the running program, mapped for the scope; empty if it cannot be.
class MappedObject {
 public:
  explicit MappedObject(const char* path) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file >= 0 && ::fstat(file, &status) == 0 && status.st_size > 0) {
      size_ = static_cast<std::size_t>(status.st_size);
      void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
      data_ = data == MAP_FAILED ? nullptr : static_cast<const char*>(data);
    }
    if (file >= 0) ::close(file);
  }
  MappedObject(const MappedObject&) = delete;
  MappedObject& operator=(const MappedObject&) = delete;
  ~MappedObject() {
    if (data_) ::munmap(const_cast<char*>(data_), size_);
  }

  /// `count` objects at an offset; none if they are not all in the file.
  template <class T>
  std::span<const T> at(std::uint64_t offset, std::uint64_t count) const {
    if (!data_ || offset > size_ || count > (size_ - offset) / sizeof(T)) return {};
    return {reinterpret_cast<const T*>(data_ + offset), static_cast<std::size_t>(count)};
  }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The loaded object that holds an address.
struct LoadedObject {
  std::uintptr_t address;
  std::uintptr_t base;
  std::string path;
};

int find_object(dl_phdr_info* info, std::size_t, void* to) {
  auto& object = *static_cast<LoadedObject*>(to);
  for (const ElfW(Phdr) & segment : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
    const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || object.address - begin >= segment.p_memsz) continue;
    object.base = info->dlpi_addr;
    object.path = *info->dlpi_name == '\0' ? "/proc/self/exe" : info->dlpi_name;
    return 1;
  }
  return 0;
}

std::vector<std::string> names_in(const MappedObject& file, std::uintptr_t value) {
  std::vector<std::string> names;
  const auto header = file.at<Elf64_Ehdr>(0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return names;
  const auto sections = file.at<Elf64_Shdr>(header[0].e_shoff, header[0].e_shnum);
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const Elf64_Shdr& strings = sections[section.sh_link];
    const auto text = file.at<char>(strings.sh_offset, strings.sh_size);
    for (const Elf64_Sym& symbol :
         file.at<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym)))
      if (symbol.st_value == value && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
          symbol.st_name < text.size())
        names.emplace_back(text.data() + symbol.st_name,
                           ::strnlen(text.data() + symbol.st_name, text.size() - symbol.st_name));
  }
  return names;
}

}  // namespace

std::vector<std::string> mangled_names(const void* function) {
  LoadedObject object{reinterpret_cast<std::uintptr_t>(function), 0, {}};
  if (::dl_iterate_phdr(find_object, &object) == 0) return {};
  return names_in(MappedObject(object.path.c_str()), object.address - object.base);
}

}  // namespace simgpu
