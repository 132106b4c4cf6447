"""Skills: folders of instructions for agents, served as resources."""

from .extension import IDENTIFIER as IDENTIFIER
from .extension import Skills as Skills
from .frontmatter import SkillError as SkillError
from .resources import add_folder as add_folder
from .resources import add_skill_files as add_skill_files

__all__ = ["IDENTIFIER", "SkillError", "Skills", "add_folder", "add_skill_files"]
