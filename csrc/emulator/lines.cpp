#include "lines.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

extern char** environ;

namespace emulator {
namespace {

// Runs a program and returns its output, or an empty string if it fails.
std::string said_by(const char* const* command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return "";
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, command[0], &actions, nullptr, const_cast<char* const*>(command), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string said;
  char part[512];
  for (ssize_t bytes = 0; error == 0 && (bytes = read(ends[0], part, sizeof(part))) > 0;) {
    said.append(part, static_cast<std::size_t>(bytes));
  }
  close(ends[0]);
  if (error == 0) {
    waitpid(child, nullptr, 0);
  }
  return said;
}

}  // namespace

std::string line_of(const void* instruction) {
  Dl_info info{};
  if (dladdr(instruction, &info) == 0) {
    return "an unknown line";
  }
  char offset[32];
  const auto at = reinterpret_cast<std::uintptr_t>(instruction) - reinterpret_cast<std::uintptr_t>(info.dli_fbase) - 1;
  std::snprintf(offset, sizeof(offset), "0x%lx", static_cast<unsigned long>(at));
  const char* const command[] = {"addr2line", "-s", "-e", info.dli_fname, offset, nullptr};
  std::string line = said_by(command);
  line.resize(std::min({line.size(), line.find('\n'), line.find(" (discriminator")}));
  return line.empty() || line[0] == '?' ? std::string(info.dli_fname) + "+" + offset : line;
}

}  // namespace emulator
