"""What the newest published llama.cpp (build b11739) computes, for architectures that the recorded
reference lacks."""
