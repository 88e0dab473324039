#include "guards.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <unordered_map>

namespace emulator {
namespace {

using Guards = std::vector<std::pair<std::size_t, std::size_t>>;

// Returns the `number`-th of the records that begin at an offset of a file; zeros beyond its end.
template <typename Record>
Record record_at(const std::string& file, std::size_t begin, std::size_t number) {
  Record record{};
  const std::size_t at = begin + number * sizeof(Record);
  if (at + sizeof(Record) <= file.size()) {
    std::memcpy(&record, file.data() + at, sizeof(Record));
  }
  return record;
}

bool is_guard(const std::string& name) { return name.rfind("_ZGV", 0) == 0 || name == "__tls_guard"; }

Guards found_in(const std::string& file) {
  Guards guards;
  const auto header = record_at<ElfW(Ehdr)>(file, 0, 0);
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const auto section = record_at<ElfW(Shdr)>(file, header.e_shoff, i);
    if (section.sh_type != SHT_SYMTAB) {
      continue;
    }
    const auto names = record_at<ElfW(Shdr)>(file, header.e_shoff, section.sh_link);
    for (std::size_t j = 0; j < section.sh_size / sizeof(ElfW(Sym)); ++j) {
      const auto symbol = record_at<ElfW(Sym)>(file, section.sh_offset, j);
      const std::size_t at = names.sh_offset + symbol.st_name;
      if (ELF64_ST_TYPE(symbol.st_info) == STT_TLS && at < file.size() && is_guard(file.c_str() + at)) {
        guards.emplace_back(symbol.st_value, symbol.st_size);
      }
    }
  }
  return guards;
}

}  // namespace

const Guards& guards_of(const std::string& library) {
  static auto* const known = new std::unordered_map<std::string, Guards>;
  const auto at = known->find(library);
  if (at != known->end()) {
    return at->second;
  }
  std::ifstream stream(library, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  return known->emplace(library, found_in(file)).first->second;
}

}  // namespace emulator
