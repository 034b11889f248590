#include "kernels/shared_variables.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include <cxxabi.h>
#include <elf.h>

namespace simgpu {
namespace {

/// Reads `count` structures at an offset of a file; none if the file ends before.
template <class T>
std::vector<T> read_at(std::ifstream& file, std::size_t offset, std::size_t count) {
  std::vector<T> items(count);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(items.data()), static_cast<std::streamsize>(count * sizeof(T)));
  if (!file) items.clear();
  return items;
}

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : symbol;
}

}  // namespace

std::optional<Variable> shared_variable_at(const Module& module, std::uintptr_t address) {
  std::ifstream file(module.path, std::ios::binary);
  const auto header = read_at<Elf64_Ehdr>(file, 0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  const auto sections = read_at<Elf64_Shdr>(file, header[0].e_shoff, header[0].e_shnum);
  const std::size_t wanted = address - module.own_begin;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const Elf64_Shdr& strings = sections[section.sh_link];
    const auto names = read_at<char>(file, strings.sh_offset, strings.sh_size);
    for (const Elf64_Sym& symbol :
         read_at<Elf64_Sym>(file, section.sh_offset, section.sh_size / sizeof(Elf64_Sym)))
      if (ELF64_ST_TYPE(symbol.st_info) == STT_TLS && wanted - symbol.st_value < symbol.st_size &&
          symbol.st_name < names.size())
        return Variable{demangled(names.data() + symbol.st_name), wanted - symbol.st_value,
                        symbol.st_size};
  }
  return std::nullopt;
}

}  // namespace simgpu
